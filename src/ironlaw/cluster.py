"""The Cluster: one kind of accelerator in one kind of node on one fabric, with the calibration records of each tier."""

from __future__ import annotations

from typing import Any

from ironlaw.catalog.records import Accelerator, Calibration, ElementwiseConstants, Fabric, GemmConstants, Node, Systems
from ironlaw.catalog.sourced import Sourced
from ironlaw.errors import CatalogError
from ironlaw.frozen import Frozen

OWN_ENGINES = ("ici-torus", "neuronlink-torus")  # links with engines for collectives, which need no compute units: TPU, Trainium


class Cluster(Frozen):
    """One kind of accelerator in one kind of node on one fabric, with the calibration records of each tier."""

    accelerator: Accelerator
    node: Node
    fabric: Fabric
    calibration: Calibration
    reference: Accelerator  # the device the calibration was measured on
    scale_up: Calibration
    scale_out: Calibration
    systems: Systems
    gpus_per_domain: float | None = None  # that a job takes of every scale-up domain; None: as many as its groups divide
    clock: Any = None  # fraction of the reference's clock this part's power limit sustains; None: the reference itself
    network_share: float = 1.0  # of the rate of its NICs, what the job has beside other jobs
    oversubscription: Any = 1.0  # rate of a pod's NICs over that of the links that leave it
    pod_size: Any = None  # accelerators that reach each other at the whole rate of their NICs; read where there is oversubscription
    in_network_reduction: str | None = None  # on, off, nvls or sharp; None: as the library takes it where it was measured
    topology: tuple[float, ...] = ()  # of a torus, chips of each axis of the slice that the question gives; (): as of the number of chips
    margin: float | None = None  # share of device memory that must stay free; None: not given

    @property
    def room(self) -> float:
        """Bytes of device memory within which a plan fits: usable memory without the margin, where one is given [B]."""
        return self.accelerator.usable_memory * (1.0 - (self.margin or 0.0))

    def gemm(self, precision: str) -> GemmConstants:
        """The GEMM constants of a precision."""
        return self.calibration.gemm[precision]

    def experts(self, precision: str) -> GemmConstants:
        """The constants of grouped GEMMs in a precision; the constants of a dense GEMM where no grouped GEMM was measured."""
        return self.calibration.experts.get(precision) or self.gemm(precision)

    @property
    def row_bandwidth(self) -> Sourced:
        """Fraction of HBM bandwidth of the copies of rows to experts and back; where none was measured, of an element-wise kernel.

        It is the fraction of bf16: in narrow formats the measurement includes casts.
        """
        measured = self.calibration.experts.get("bf16")
        fraction = None if measured is None else measured.rows_bandwidth_fraction
        return self.elementwise.bandwidth_fraction if fraction is None else fraction

    @property
    def overlap_slowdown(self) -> Sourced:
        """Slowdown of computation beside a collective; 0 where dedicated engines, not the compute units, move the data."""
        if self.node.scale_up in OWN_ENGINES:
            return Sourced(0.0, "1", f"0: {self.node.scale_up} moves data by dedicated engines", self.systems.overlap_slowdown.source)
        return self.systems.overlap_slowdown

    @property
    def elementwise(self) -> ElementwiseConstants:
        """The constants of memory-bound kernels."""
        if self.calibration.elementwise is None:
            raise CatalogError(f"calibration record {self.calibration.name} lacks elementwise: every device needs it")
        return self.calibration.elementwise
