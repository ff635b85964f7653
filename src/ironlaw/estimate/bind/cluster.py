"""The cluster of a question: accelerator, node, fabric and the calibration of each tier."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from ironlaw.catalog import load
from ironlaw.catalog.records import OPERATIONS, SLICE, Accelerator, Calibration, Fabric, Node, Systems
from ironlaw.catalog.sourced import Sourced
from ironlaw.cluster import Cluster
from ironlaw.errors import CatalogError, QuestionError, UnknownNameError, UnsupportedError, ValueRangeError
from ironlaw.estimate.fabric import slices
from ironlaw.estimate.fabric.placement import nearest_slices, slices_of, tray_of
from ironlaw.law import fabrics, kernels
from ironlaw.precision import Precision, precision_of
from ironlaw.question.asked import Asked, asked_of
from ironlaw.question.assumptions import Assumptions, assume
from ironlaw.question.options import GROUPS

NEAREST = 6  # devices that a refusal names
_HEADINGS = ("Machine", "Network")  # of the options that describe the cluster
CLUSTER_OPTIONS = (*(name for heading in _HEADINGS for name in GROUPS[heading] if name != "gpus"), "precision", "offload")


def bind_precision(on: str, folders: tuple[str, ...]) -> str:
    """The default precision: bf16, or fp16 on a device without it."""
    accelerator = load.record("accelerators", on, folders)
    return "bf16" if "bf16" in accelerator.peak or "fp16" not in accelerator.peak else "fp16"


def find_precision(option: str, name: str, folders: tuple[str, ...]) -> Precision:
    """The precision that an option names, a shipped one or the user's."""
    try:
        return precision_of(name, folders)
    except UnknownNameError as error:
        raise UnknownNameError(f"--{option}", name, load.names("precisions", folders), more="ironlaw catalog list precisions") from error


def can_run(precision: Precision, accelerator: Accelerator, calibration: Calibration) -> bool:
    """True where a device has a rate, and its calibration constants, for every product of a precision."""
    products = precision.products.values()
    peaks = {product.peak for product in products} | {precision.wide}
    rounds = accelerator.stochastic_rounding or not precision.rounds_at_random
    return rounds and peaks <= set(accelerator.peak) and {product.gemm for product in products} <= set(calibration.gemm)


def _refuse_unknown_rate(
    option: str, precision: Precision, accelerator: Accelerator, calibration: Calibration, folders: tuple[str, ...]
) -> None:
    """Refuse a precision that the device cannot multiply; say which it can, and which other devices can multiply this one."""
    if can_run(precision, accelerator, calibration):
        return
    usable = [name for name in load.names("precisions", folders) if can_run(precision_of(name, folders), accelerator, calibration)]
    others = [load.record("accelerators", name, folders) for name in load.names("accelerators", folders)]
    able = [o for o in others if can_run(precision, o, load.record("calibration", o.calibration, folders))]
    near = sorted(able, key=lambda other: (other.vendor != accelerator.vendor, other.name))[:NEAREST]
    elsewhere = f"; {precision.name} runs on {', '.join(other.name for other in near)}" if near else ""
    lacks = "has no such matrix rate"
    if can_run(precision.replace(rounds_at_random=False), accelerator, calibration):
        lacks = "cannot round its casts at random"
    raise UnsupportedError(f"--{option} {precision.name}: {accelerator.name} {lacks}; it has {', '.join(usable)}{elsewhere}")


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
    odd = next((topology for topology in node.slices if not SLICE.fullmatch(topology)), None)
    if odd is not None:
        raise CatalogError(f"node {node.name}: slices has {odd!r}, expected chips of each axis such as 2x4")
    node = _given_links(_nics_of(node, fabric, asked, assumptions), asked)
    for kind, record in (("accelerators", accelerator), ("nodes", node), ("fabrics", fabric)):
        note_override(kind, record.name, folders, assumptions)
    if asked.node is None:
        assume(assumptions, "node", node.name, "default")
    if asked.fabric is None:
        assume(assumptions, "fabric", fabric.name, "default")
    calibration: Calibration = load.record("calibration", accelerator.calibration, folders)
    scale_up = load.record("calibration", node.collective_calibration, folders) if node.collective_calibration else calibration
    scale_out = load.record("calibration", fabric.calibration, folders)
    for record in (scale_up, scale_out):
        _refuse_missing_collectives(record)
    systems = load.record("systems", "default", folders)
    if any(row.offload for row in asked.rows):
        bind_host("--offload", accelerator, node, systems, assumptions)
    if any("nvme" in (row.offload or ()) for row in asked.rows):
        drives = node.nvme_bandwidth
        text = (
            f"{systems.nvme_bandwidth.text} for each server, of a DGX-2: the record of {node.name} has none"
            if drives is None
            else drives.text
        )
        assume(assumptions, "NVMe bandwidth", text, "default")
        assume(assumptions, "NVMe capacity", "not checked", "default")
    reference = load.record("accelerators", calibration.device, folders)
    if reference.name != accelerator.name:
        assume(assumptions, "kernel constants", f"those of {reference.name}: no operators of {accelerator.name} were measured", "default")
    clock = _sustained_clock(accelerator, reference, systems, assumptions)
    if asked.power_cap is not None:
        accelerator, clock = capped(accelerator, asked.power_cap, clock, systems, assumptions)
    for option, name in (("precision", asked.precision or bind_precision(asked.on, folders)), ("expert-precision", asked.expert_precision)):
        if name:
            _refuse_unknown_rate(option, find_precision(option, name, folders), accelerator, calibration, folders)
    ratio, pod_size = pods_of(node, fabric, asked, assumptions)
    return Cluster(
        accelerator, node, fabric, calibration, reference, scale_up, scale_out, systems,
        gpus_per_domain=_given_share(node, asked), clock=clock, network_share=asked.network_share, oversubscription=ratio,
        pod_size=pod_size, in_network_reduction=reduction_of(accelerator, node, fabric, asked.in_network_reduction),
        topology=topology_of(node, asked), margin=asked.margin,
    )  # fmt: skip


def _refuse_missing_collectives(record: Calibration) -> None:
    """Raise the error of a calibration that lacks an operation between accelerators."""
    missing = [name for name in OPERATIONS if name not in record.collective]
    if missing:
        raise CatalogError(f"calibration {record.name}: collective.{missing[0]} is missing; it needs {', '.join(OPERATIONS)}")


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


def topology_of(node: Node, asked: Asked) -> tuple[float, ...]:
    """The sides of the slice that a question gives; an error where the pod has no such slice, or the job is no whole number of them."""
    if asked.topology is None:
        return ()
    written = "x".join(f"{side:g}" for side in asked.topology)
    if node.torus_axes is None:
        raise UnsupportedError(f"--topology {written}: {node.name} is no torus, its accelerators are joined by {node.scale_up}")
    if asked.gpus_per_domain is not None:
        raise QuestionError("--topology and --gpus-per-domain both give the chips of a pod that a job takes: give one of them")
    chips = math.prod(asked.topology)
    if not slices.is_slice(node, asked.topology):
        near = (chips, *nearest_slices(node, chips)) if chips in slices_of(node) else nearest_slices(node, chips)
        known = " or ".join(slices.written(slices.slice_shape(node, count)) for count in near)
        raise ValueRangeError(
            f"--topology {written}: {node.name} has no such slice, the nearest {'are' if len(near) > 1 else 'is'} {known}"
        )
    for row in asked.rows:
        if row.gpus is not None and row.gpus % chips:
            counts = " or ".join(f"{count:g}" for count in sorted({row.gpus // chips * chips, -(-row.gpus // chips) * chips} - {0.0}))
            raise ValueRangeError(
                f"--topology {written} has {chips} chips: --gpus {row.gpus:g} is no whole number of slices, give {counts}"
            )
    return slices.in_order(node, asked.topology)


def reduction_of(accelerator: Accelerator, node: Node, fabric: Fabric, asked: str | None) -> str | None:
    """The switches that add, as asked; an error where there are none of that kind."""
    nvls = node.nvls and node.scale_up_size.value > 1
    option, has = f"--in-network-reduction {asked}", f"{accelerator.name} in {node.name}"
    if asked == "nvls" and not nvls:
        raise UnsupportedError(f"{option}: {has} has no NVSwitch that adds, as those since Hopper do; give off, or leave it out")
    if asked == "sharp" and fabric.sharp is None:
        raise UnsupportedError(f"{option}: the switches of {fabric.name} do not add; infiniband-hdr and later do. Leave the option out")
    if asked == "on" and not nvls and fabric.sharp is None:
        raise UnsupportedError(f"{option}: no switch of {has} or of {fabric.name} adds; leave the option out")
    return asked


def pods_of(node: Node, fabric: Fabric, asked: Asked, assumptions: Assumptions) -> tuple[Any, Any]:
    """The oversubscription above pods, and the accelerators of a pod; 1 and None where all NICs reach each other at their whole rate."""
    ratio: Any = asked.oversubscription if asked.oversubscription is not None else fabric.oversubscription
    if ratio is None:
        if asked.pod_size is not None:
            raise QuestionError("--pod-size needs --oversubscription R: without it links between pods are as fast as those in them")
        return 1.0, None
    if getattr(ratio, "value", ratio) == 1.0:
        return 1.0, None
    if asked.oversubscription is None:
        assume(assumptions, "oversubscription", ratio.text, "default")
    if asked.pod_size is not None:
        return ratio, asked.pod_size
    size = fabric.pod_size if fabric.pod_size is not None else leaf_pod(node, fabric, asked.rail_optimised)
    assume(assumptions, "pod size", size.text, "default")
    return ratio, size


def leaf_pod(node: Node, fabric: Fabric, rail_optimised: bool | None) -> Sourced:
    """Accelerators whose NICs share a leaf switch with half of its ports down, or, with rails, the leaves of all rails."""
    each = node.accelerators.value / node.nics.value
    if fabric.switch_radix is None:
        size = node.scale_up_size.value
        return Sourced(size, "1", f"{size:g}, one scale-up domain: no switch of {fabric.name} in the catalogue", None)
    rails = rail_optimised if rail_optimised is not None else fabric.rail_optimised
    ports = float(fabrics.leaf_ports(fabric.switch_radix.value, 1.0))
    size = max(ports * each * (node.nics.value if rails else 1.0), node.scale_up_size.value)
    leaves = f"leaves of {node.nics.value:g} rails" if rails else "one leaf"
    return Sourced(size, "1", f"{size:g}, below {leaves} with {ports:g} ports to NICs each", fabric.switch_radix.source)


def _nics_of(node: Node, fabric: Fabric, asked: Asked, assumptions: Assumptions) -> Node:
    """A node with the NICs that a fabric has where it is not the usual one: servers have one port of plain Ethernet, not one a GPU."""
    if fabric.nics_per_node is None or fabric.name == node.usual_fabric or asked.nic_bandwidth is not None:
        return node
    count, nic = fabric.nics_per_node, fabric.nic_bandwidth
    each = f"{count.value:g} NIC{'s' if count.value > 1 else ''} of {nic.text} for the {node.accelerators.value:g} accelerators of a node"
    assume(assumptions, "NICs of the node", f"{each}; --nic-bandwidth gives another rate, of each accelerator", "default")
    return node.replace(nics=count, nic_bandwidth=None)


def _given_links(node: Node, asked: Asked) -> Node:
    """A node with the scale-up domain and NIC rate of the question; the given rate is that of one NIC for each accelerator."""
    if asked.scale_up_size is not None:
        node = node.replace(scale_up_size=Sourced(asked.scale_up_size, "1", f"{asked.scale_up_size:g}", None, "given"))
    if asked.nic_bandwidth is not None:
        text = f"{asked.nic_bandwidth / 1e9:g} GB/s"
        node = node.replace(nic_bandwidth=Sourced(asked.nic_bandwidth, "B/s", text, None, "given"))
    return node


def bind_host(option: str, accelerator: Accelerator, node: Node, systems: Systems, assumptions: Assumptions) -> None:
    """Refuse what moves to the host on a device without a link to it in the catalogue, and note what is assumed of the host."""
    if accelerator.pcie_bandwidth is None and accelerator.c2c_bandwidth is None:
        raise UnsupportedError(f"{option}: {accelerator.name} has no pcie_bandwidth in the catalogue")
    _assume_host(node, systems, assumptions)


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


def capped(
    accelerator: Accelerator, cap: float, clock: float | None, systems: Systems, assumptions: Assumptions
) -> tuple[Accelerator, float | None]:
    """The accelerator under a power cap, and the share of the calibrated device's clock that it sustains.

    A cap lowers the clock, and with it every matrix rate; HBM and links keep their clocks. A record of a limited part names the power
    of the same part without the limit, ``full_power``: its clock at the cap is that of the full part at the same cap.
    """
    _refuse_cap(accelerator, cap, systems)
    rated, full = accelerator.tdp.value, (accelerator.full_power or accelerator.tdp).value
    if cap >= rated:
        assume(assumptions, "power cap", f"{cap:g} W has no effect: {accelerator.name} draws at most {accelerator.tdp.text}", "given")
        return accelerator, clock
    at_cap, at_rated = (_clock_at(limit, full, systems) for limit in (cap, rated))
    lowered = at_cap / at_rated
    text = f"{lowered:.3f} of the clock at {accelerator.tdp.text}, for matrix kernels; HBM and links keep their rate"
    assume(assumptions, f"clock at {cap:g} W", text, "default")
    tdp = Sourced(cap, "W", f"{cap:g} W", None, f"power cap; {accelerator.tdp.text} without it")
    limited = accelerator.replace(tdp=tdp, title=f"{accelerator.title}, capped at {cap:g} W")
    return limited, lowered * (1.0 if clock is None else clock)


def _clock_at(limit: float, full: float, systems: Systems) -> float:
    """The clock under a power limit over that at full power."""
    floor = 0.0 if systems.voltage_floor is None else systems.voltage_floor.value
    return float(kernels.power_limited_clock(limit, full, systems.idle_power_fraction.value * full, floor))


def _refuse_cap(accelerator: Accelerator, cap: float, systems: Systems) -> None:
    """Refuse a cap that the device cannot be set to."""
    if accelerator.fixed_clock:
        raise UnsupportedError(f"--power-cap: {accelerator.name} has a fixed clock, which no power limit lowers: leave it out")
    full = accelerator.full_power or accelerator.tdp
    share = systems.least_power_fraction or systems.idle_power_fraction
    least = share.value * full.value if accelerator.least_power is None else accelerator.least_power.value
    if cap < least:
        why = f"{share.value:.0%} of its {full.text}; its own limit is not known" if accelerator.least_power is None else "its lowest limit"
        raise ValueRangeError(f"--power-cap {cap:g} W: {accelerator.name} takes at least {least:g} W ({why})")
