"""The cluster of a question: accelerator, node, fabric and the calibration of each tier."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ironlaw.catalog import load
from ironlaw.catalog.records import Accelerator, Calibration, Node, Systems
from ironlaw.catalog.sourced import Sourced
from ironlaw.cluster import Cluster
from ironlaw.errors import UnsupportedError, ValueRangeError
from ironlaw.estimate.placement import tray_of
from ironlaw.job import PRECISIONS
from ironlaw.law import kernels
from ironlaw.question.asked import Asked, asked_of
from ironlaw.question.assumptions import Assumptions, assume

CLUSTER_OPTIONS = ("on", "node", "fabric", "scale_up_size", "gpus_per_domain", "nic_bandwidth", "precision", "offload")


def bind_precision(on: str, folders: tuple[str, ...]) -> str:
    """The default precision: bf16, or fp16 on a device without it."""
    accelerator = load.record("accelerators", on, folders)
    return "bf16" if "bf16" in accelerator.peak or "fp16" not in accelerator.peak else "fp16"


def cluster_of(values: Mapping[str, Any], folders: tuple[str, ...], assumptions: Assumptions) -> Cluster:
    """The cluster that the options of any verb name."""
    return bind_cluster(asked_of(values, CLUSTER_OPTIONS), folders, assumptions)


def note_override(kind: str, name: str, folders: tuple[str, ...], assumptions: Assumptions) -> None:
    """Note the user's file, or the installed package, that a record comes from; nothing where the shipped one is used."""
    if where := load.overrides(kind, name, folders):
        assume(assumptions, load.SINGULAR[kind], f"{name} from {where}", "override")


def bind_cluster(asked: Asked, folders: tuple[str, ...], assumptions: Assumptions) -> Cluster:
    """The Cluster: the accelerator, its usual node and fabric unless they are given, and the calibration of each tier."""
    accelerator = load.record("accelerators", asked.on, folders)
    node = load.record("nodes", asked.node or accelerator.usual_node, folders)
    fabric = load.record("fabrics", asked.fabric or node.usual_fabric, folders)
    node = _given_links(node, asked)
    for kind, record in (("accelerators", accelerator), ("nodes", node), ("fabrics", fabric)):
        note_override(kind, record.name, folders, assumptions)
    if asked.node is None:
        assume(assumptions, "node", node.name, "default")
    if asked.fabric is None:
        assume(assumptions, "fabric", fabric.name, "default")
    calibration: Calibration = load.record("calibration", accelerator.calibration, folders)
    scale_up = load.record("calibration", node.collective_calibration, folders) if node.collective_calibration else calibration
    systems = load.record("systems", "default", folders)
    if any(row.offload for row in asked.rows):
        if accelerator.pcie_bandwidth is None and accelerator.c2c_bandwidth is None:
            raise UnsupportedError(f"--offload: {accelerator.name} has no pcie_bandwidth in the catalogue")
        _assume_host(node, systems, assumptions)
    reference = load.record("accelerators", calibration.device, folders)
    clock = _sustained_clock(accelerator, reference, systems, assumptions)
    for option, name in (("precision", asked.precision or bind_precision(asked.on, folders)), ("expert-precision", asked.expert_precision)):
        formats = PRECISIONS.get(name)  # None: the option is not given
        if formats and not ({formats.peak, formats.wide} <= set(accelerator.peak) and formats.gemm in calibration.gemm):
            usable = [p.name for p in PRECISIONS.values() if p.peak in accelerator.peak and p.gemm in calibration.gemm]
            raise UnsupportedError(f"--{option} {name}: {accelerator.name} has no such matrix rate; it has {', '.join(usable)}")
    return Cluster(
        accelerator, node, fabric, calibration, reference, scale_up, load.record("calibration", fabric.calibration, folders), systems,
        _given_share(node, asked), clock, asked.margin,
    )  # fmt: skip


def _given_share(node: Node, asked: Asked) -> float | None:
    """The accelerators of every domain that the question gives to the job: whole trays where a domain has several."""
    given, domain, tray = asked.gpus_per_domain, node.scale_up_size.value, tray_of(node)
    if given is None:
        return None
    if given > domain:
        raise ValueRangeError(f"--gpus-per-domain {given:g}: a scale-up domain of {node.name} has {domain:g}, give at most {domain:g}")
    if given % tray:
        near = sorted({n for n in (given // tray * tray, given // tray * tray + tray) if tray <= n <= domain})
        whole = " or ".join(f"{n:g}" for n in near)
        raise ValueRangeError(f"--gpus-per-domain {given:g}: a job takes whole trays of {tray:g} accelerators of {node.name}, give {whole}")
    return given


def _given_links(node: Node, asked: Asked) -> Node:
    """A node with the scale-up domain and NIC rate of the question; the given rate is that of one NIC for each accelerator."""
    if asked.scale_up_size is not None:
        node = node.replace(scale_up_size=Sourced(asked.scale_up_size, "1", f"{asked.scale_up_size:g}", None, "given"))
    if asked.nic_bandwidth is not None:
        text = f"{asked.nic_bandwidth / 1e9:g} GB/s"
        node = node.replace(nic_bandwidth=Sourced(asked.nic_bandwidth, "B/s", text, None, "given"))
    return node


def _assume_host(node: Node, systems: Systems, assumptions: Assumptions) -> None:
    """Note the rates and sizes of the host that optimizer states or activations move to."""
    bandwidth, usual = node.host_memory_bandwidth, systems.host_memory_bandwidth
    text = f"{usual.text}, a usual server: the catalogue has none of {node.name}" if bandwidth is None else bandwidth.text
    assume(assumptions, "host memory bandwidth", text, "default")
    capacity = node.host_memory_capacity
    text = f"not in the catalogue for {node.name}, not checked" if capacity is None else capacity.text
    assume(assumptions, "host memory", text, "default")
    if node.accelerators_per_host_link is None:
        assume(assumptions, "links to the host", "one for each accelerator", "default")


def _sustained_clock(accelerator: Accelerator, reference: Accelerator, systems: Systems, assumptions: Assumptions) -> float | None:
    """The share of the calibrated device's clock that a part with a lower power limit sustains; None without a lower limit."""
    if accelerator.tdp.value >= reference.tdp.value or accelerator.name == reference.name:
        return None
    idle = systems.idle_power_fraction.value * reference.tdp.value
    clock = float(kernels.power_limited_clock(accelerator.tdp.value, reference.tdp.value, idle))
    text = f"{clock:.3f} of {reference.name} ({accelerator.tdp.text} of {reference.tdp.text})"
    assume(assumptions, "sustained clock", text, "default")
    return clock
