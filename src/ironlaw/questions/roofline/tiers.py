"""The tiers of memory and links of a device in one table: capacity, bandwidth, and the time to move what is asked through each."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from ironlaw import units
from ironlaw.cautions.table import caution
from ironlaw.cluster import Cluster
from ironlaw.estimate.bind.cluster import cluster_of
from ironlaw.estimate.bind.model import bind_model
from ironlaw.estimate.fabric import group_links
from ironlaw.estimate.layer.counts import total_parameters
from ironlaw.law import collectives, dataloading, states
from ironlaw.precision import PRECISIONS
from ironlaw.question import defaults
from ironlaw.question.assumptions import Assumptions, assume
from ironlaw.question.forms import need
from ironlaw.questions.answer import Answer, Column, Table, filled_columns
from ironlaw.questions.roofline.roofs import given_rate
from ironlaw.terms import Term, leaf, plain, scalar

COLUMNS = (
    Column("tier", "tier"), Column("shared", "shared by", "1"), Column("capacity", "capacity", "B"),
    Column("bandwidth", "bandwidth, all", "B/s"), Column("rate", "for one accelerator", "B/s"),
    Column("jump", "times the tier above", "1"), Column("seconds", "moves it in", "s"), Column("holds", "holds it"),
)  # fmt: skip
STORAGE, HOST, LINK, HBM = "storage", "host memory", "link to the host", "HBM"
WAY = (STORAGE, HOST, LINK, HBM)  # of data to the accelerator
STORED = ("disk", "storage_network", "sustained", "access_factor")  # options of storage, as those of ironlaw data


@dataclass(frozen=True)
class Tier:
    """A tier of memory, or a link: its capacity (None for a link) and its bandwidth, which several accelerators may share."""

    name: str
    bandwidth: Any
    capacity: Any = None
    shared: float = 1.0  # accelerators
    link: bool = False

    @property
    def rate(self) -> float:
        """The share of one accelerator [B/s]."""
        return float(plain(self.bandwidth)) / self.shared


def answer(_question: str, values: dict[str, Any], folders: tuple[str, ...]) -> Answer:
    """Tiers from storage to on-chip memory, the slowest on the way to the accelerator, and times for a model's weights or a size."""
    need(values, "on")
    notes: Assumptions = []
    cluster = cluster_of(values, folders, notes)
    storage = bind_storage(values, notes)
    tiers = list_tiers(cluster, storage)
    moved = _bind_moved(values, folders, notes)
    by_name = {tier.name: tier for tier in tiers}
    way = leaf(
        "rate from storage to the accelerator", dataloading.path_rate, "B/s",
        storage=by_name[STORAGE].rate, system=by_name[HOST].rate if HOST in by_name else math.inf, accelerator=_into_accelerator(tiers),
    )  # fmt: skip
    rows = [_tier_row(tier, moved) for tier in tiers]
    _add_jumps(rows, tiers)
    terms = [way, storage, *([moved] if moved else [])]
    slowest = min((tier for tier in tiers if tier.name in WAY), key=lambda tier: tier.rate)
    headline = [f"from storage to the accelerator: {units.show(scalar(way), 'B/s', 4)} for one accelerator, limited by {slowest.name}"]
    if moved is not None:
        time = leaf("time from storage", collectives.point_to_point, "s", size=moved.value, bandwidth=way.value, latency=0.0)
        terms.append(time)
        headline.append(
            f"{moved.name}, {units.show(scalar(moved), 'B', 4)}: {units.show(scalar(time), 's', 4)} from storage,"
            f" {units.show(scalar(moved) / by_name[HBM].rate, 's', 4)} from HBM"
        )
    title = f"Tiers of memory and links of {cluster.accelerator.name}"
    table = Table("tiers", "From storage to the chip, in one direction", filled_columns(COLUMNS, rows), rows)
    missing = [] if HOST in by_name else [caution("no-host-bandwidth", node=cluster.node.name)]
    return Answer(title, headline, [table], terms, {"slowest": slowest.name}, notes, missing, folders=folders)


def list_tiers(cluster: Cluster, storage: Any) -> list[Tier]:
    """The tiers of a cluster from storage to on-chip memory; those without a number in the catalogue are left out."""
    device, node = cluster.accelerator, cluster.node
    count = node.accelerators.value
    tiers = [
        Tier(STORAGE, storage, shared=count),
        Tier("NIC", group_links.nic_rate(cluster), link=True),
        Tier(HOST, node.host_memory_bandwidth, node.host_memory_capacity, count),
        Tier(LINK, device.c2c_bandwidth or device.pcie_bandwidth, shared=plain(node.accelerators_per_host_link or 1.0), link=True),
        Tier("scale-up link", node.scale_up_bandwidth, link=True),
        Tier(HBM, device.hbm_bandwidth, device.memory_capacity),
        Tier("L2 cache", device.l2_bandwidth, device.l2_capacity),
        Tier("shared memory", device.shared_memory_bandwidth, device.shared_memory_capacity),
    ]
    return [tier for tier in tiers if tier.bandwidth is not None and plain(tier.bandwidth) > 0]


def _into_accelerator(tiers: Sequence[Tier]) -> float:
    """The rate into the memory of one accelerator: of its link to the host, or of HBM where the link is unknown."""
    return min(tier.rate for tier in tiers if tier.name in (LINK, HBM))


def bind_storage(values: Mapping[str, Any], notes: Assumptions) -> Term:
    """What the storage of a node delivers: its disks or its network to storage, sustained and with its access pattern."""
    disk, network = values.get("disk"), values.get("storage_network")
    if disk is None and network is None:
        disk = defaults.DISK
        assume(notes, "disk", f"{units.show(disk, 'B/s')} of a node by datasheet, one NVMe drive", "default")
    if "sustained" not in values:
        assume(notes, "sustained", f"{defaults.SUSTAINED:g} of the datasheet's rate", "default")
    if "access_factor" not in values:
        assume(notes, "access_factor", "1, sequential", "default")
    rates = {
        "disk": math.inf if disk is None else given_rate(disk, "B/s"),
        "network": math.inf if network is None else given_rate(network, "B/s"),
    }
    shares = {"sustained_fraction": values.get("sustained", defaults.SUSTAINED), "access_factor": values.get("access_factor", 1.0)}
    return leaf("storage of a node", dataloading.storage_rate, "B/s", **rates, **shares)


def _bind_moved(values: Mapping[str, Any], folders: tuple[str, ...], notes: Assumptions) -> Term | None:
    """The bytes to move: the weights of MODEL in its precision, or --size; None where neither is given."""
    if "size" in values:
        return leaf("the given size", _given, "B", size=given_rate(values["size"], "B"))
    if "model" not in values:
        return None
    model, _ = bind_model(values["model"], folders)
    precision = values.get("precision", "bf16")
    if "precision" not in values:
        assume(notes, "precision", f"{precision}, of the weights", "default")
    size = PRECISIONS[precision].parameter_bytes
    count = float(total_parameters(model))
    return leaf(f"the weights of {model.name}", states.state, "B", parameters=count, bytes_per_parameter=size, shards=1.0)


def _given(size: Any) -> Any:
    """A size of the question: ``size``."""
    return size


def _tier_row(tier: Tier, moved: Term | None) -> dict[str, Any]:
    """The row of one tier."""
    capacity = None if tier.capacity is None else plain(tier.capacity)
    row: dict[str, Any] = {
        "tier": tier.name, "shared": tier.shared if tier.shared > 1.0 else None, "capacity": capacity,
        "bandwidth": plain(tier.bandwidth), "rate": tier.rate,
    }  # fmt: skip
    if moved is not None:
        row["seconds"] = scalar(moved) / tier.rate
        row["holds"] = None if capacity is None else capacity >= scalar(moved)
    return row


def _add_jumps(rows: Sequence[dict[str, Any]], tiers: Sequence[Tier]) -> None:
    """How many times the bandwidth of the memory before it each memory has; links are no tiers of memory."""
    memories = [row for row, tier in zip(rows, tiers, strict=True) if not tier.link]
    for before, row in pairwise(memories):
        row["jump"] = row["bandwidth"] / before["bandwidth"]
