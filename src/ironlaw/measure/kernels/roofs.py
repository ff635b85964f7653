"""The roofs of a device: the time of a kernel at the rates of the datasheet, and at the measured rates of its calibration record.

The measured rates are those of `ironlaw estimate`: the same laws, constants and share sustained inside a step.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ironlaw.catalog.records import Accelerator
from ironlaw.cluster import Cluster
from ironlaw.errors import IronlawError
from ironlaw.estimate.bind.cluster import cluster_of
from ironlaw.estimate.layer.attention import FLASH_BACKWARD_FLOP
from ironlaw.estimate.layer.sizes import memory_roof, sustained
from ironlaw.law import kernels

Numbers = NDArray[np.float64]


@dataclass(frozen=True)
class Times:
    """Seconds of each kernel: at datasheet rates, at achievable rates, and under each achievable roof alone."""

    ideal: Numbers
    achievable: Numbers
    compute: Numbers
    hbm: Numbers
    launch: Numbers  # the time of an empty kernel
    peak: Numbers  # [FLOP/s]


@dataclass(frozen=True)
class Roofs:
    """The rates of one accelerator."""

    cluster: Cluster

    @classmethod
    def of(cls, accelerator: Accelerator, folders: tuple[str, ...] = ()) -> Roofs | None:
        """The roofs of an accelerator; None if its calibration has no rate of matrix products."""
        for precision in ("bf16", "fp16", "fp32"):
            try:
                return cls(cluster_of({"on": accelerator.name, "precision": precision}, folders, []))
            except IronlawError:
                continue
        return None

    @property
    def bandwidth(self) -> float:
        """HBM bandwidth in the datasheet [B/s]."""
        return float(self.cluster.accelerator.hbm_bandwidth.value)

    def peak(self, precision: str) -> float:
        """The dense peak of a precision [FLOP/s], nan if the device has none."""
        value = self.cluster.accelerator.peak.get(precision)
        return float(value.value) if value is not None else float("nan")

    def memory(self, moved: Numbers) -> Times:
        """Times of memory-bound kernels."""
        constants = self.cluster.elementwise
        fraction = memory_roof(self.cluster, constants.bandwidth_fraction, sustains=False).fraction.value
        hbm = kernels.memory_time(moved, self.bandwidth, fraction, 0.0)
        launch = constants.launch.value
        return Times(
            ideal=kernels.memory_time(moved, self.bandwidth, 1.0, 0.0),
            achievable=kernels.memory_time(moved, self.bandwidth, fraction, launch),
            compute=np.zeros_like(hbm),
            hbm=hbm,
            launch=np.full_like(hbm, launch),
            peak=np.full_like(hbm, np.nan),
        )

    def matrix(self, flop: Numbers, moved: Numbers, precision: str) -> Times:
        """Times of matrix products and convolutions."""
        table = self.cluster.calibration.gemm
        constants = table.get(precision) or table.get("bf16") or next(iter(table.values()))
        fill = constants.fill.value if constants.fill is not None else 0.0
        return self._at(flop, moved, precision, sustained(self.cluster, constants.efficiency).value, constants, fill)

    def attention(self, flop: Numbers, moved: Numbers, precision: str, keys: Numbers, rows: Numbers, backward: bool) -> Times:
        """Times of fused attention, whose efficiency depends on the sequence length and on the number of rows."""
        known, table = self.cluster.calibration.attention, self.cluster.calibration.gemm
        if not known:
            return self.matrix(flop, moved, precision)
        c = next(iter(known.values()))
        efficiency = kernels.saturating_efficiency(keys, c.forward_efficiency.value, c.saturation_length.value)
        if c.saturation_rows is not None:
            efficiency = efficiency * kernels.device_filling(rows, c.saturation_rows.value)
        if backward:
            ratio = c.backward_time_ratio.value * self.cluster.systems.attention_backward.value
            efficiency = efficiency * FLASH_BACKWARD_FLOP / ratio
        constants = table.get(precision) or table.get("bf16") or next(iter(table.values()))
        return self._at(flop, moved, precision, sustained(self.cluster, efficiency), constants, 0.0)

    def _at(self, flop: Numbers, moved: Numbers, precision: str, efficiency: Any, constants: Any, fill: float) -> Times:
        """Times of kernels with these FLOPs and bytes at one precision and efficiency."""
        peak = self.peak(precision)
        fraction = memory_roof(self.cluster, constants.bandwidth_fraction, sustains=True).fraction.value
        hbm = kernels.memory_time(moved, self.bandwidth, fraction, 0.0)
        return Times(
            ideal=kernels.kernel_time(flop, moved, peak, self.bandwidth, 1.0, 1.0, 0.0, 0.0),
            achievable=kernels.kernel_time(flop, moved, peak, self.bandwidth, efficiency, fraction, fill, constants.launch.value),
            compute=kernels.compute_time(flop, peak, efficiency),
            hbm=hbm,
            launch=np.full_like(hbm, constants.launch.value),
            peak=np.full_like(hbm, peak),
        )
