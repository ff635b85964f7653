"""Memory of DiLoCo's outer state: its momentum, and the weights of the last exchange, on the accelerators or in host memory."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ironlaw import units
from ironlaw.estimate.answer.group import Group
from ironlaw.estimate.memory.offloading import host_capacity
from ironlaw.estimate.memory.states import optimizer_parameters
from ironlaw.estimate.pipeline.stages import stages
from ironlaw.law import states
from ironlaw.questions.answer import Column, Table, filled_columns
from ironlaw.questions.sites.site_step import SiteStep
from ironlaw.terms import Term, leaf, scalar

MOMENTUM, WEIGHTS = 4.0, 4.0  # bytes of a parameter: both in fp32
OUTER = (
    Column("site", "site"), Column("where", "outer state in"), Column("outer", "of one accelerator", "B"),
    Column("device", "device memory with it", "B"), Column("capacity", "of", "B"), Column("host", "host memory with it", "B"),
    Column("host_capacity", "of, an accelerator's share", "B"), Column("fits", "fits"),
)  # fmt: skip


@dataclass(frozen=True, eq=False)
class OuterState:
    """The outer state of all sites: its largest part on one accelerator, a row for each site, and whether it fits everywhere."""

    terms: list[Term]
    rows: list[dict[str, Any]]
    where: str

    margin: float  # share of device memory that would keep room for it on the accelerators

    @property
    def fits(self) -> bool:
        """True where every site has room for it."""
        return all(row["fits"] for row in self.rows)

    def tabulate(self) -> Table:
        """The table of sites."""
        title = "Outer state of DiLoCo: momentum and weights in fp32, sharded as the optimizer is"
        return Table("outer_state", title, filled_columns(OUTER, self.rows), self.rows)

    def describe(self) -> list[str]:
        """Why it does not fit, for each site."""
        lines = []
        for row in self.rows:
            if not row["fits"] and self.where == "device":
                lines.append(
                    f"the outer state of DiLoCo does not fit {row['site']}: an accelerator needs {units.show(row['device'], 'B', 4)} of"
                    f" {units.show(row['capacity'], 'B', 4)}; give --outer-state host"
                )
            elif not row["fits"]:
                lines.append(
                    f"the outer state of DiLoCo does not fit the hosts of {row['site']}: {units.show(row['host'], 'B', 4)} for each"
                    f" accelerator of {units.show(row['host_capacity'], 'B', 4)}"
                )
        return lines


def count_outer_state(sites: Sequence[tuple[str, SiteStep]], where: str, margin: float) -> OuterState | None:
    """The outer state of every site beside what its step needs; None in the simplified model, which has no plan.

    ``margin``: share of device memory that stays free even so.
    """
    found = [(name, step, step.group) for name, step in sites if step.group is not None]
    if not found:
        return None
    terms, rows, margins = [], [], []
    for name, step, group in found:
        classes = [stage for stage in stages(group.job, group.plan) if not stage.shadowed]
        outer = [_outer_term(group, name, stage) for stage in classes]
        row = _add_to_memory(group, outer, where, margin)
        terms.append(max(outer, key=scalar))
        margins.append(group.margin + scalar(terms[-1]) / group.memory.capacity)
        rows.append({"site": name, "where": where, "outer": scalar(terms[-1]), **row, "fits": row["fits"] and step.fits})
    return OuterState(terms, rows, where, max(margins))


def _outer_term(group: Group, name: str, stage: Any) -> Term:
    """The outer state of one accelerator of a pipeline stage."""
    return leaf(
        f"outer state at {name}", states.state, "B", parameters=optimizer_parameters(group.job, group.plan, stage) * (stage.count > 0),
        bytes_per_parameter=MOMENTUM + WEIGHTS, shards=1.0,
    )  # fmt: skip


def _add_to_memory(group: Group, outer: list[Term], where: str, margin: float) -> dict[str, Any]:
    """Device and host memory of the fullest stage with the outer state, beside what there is."""
    memory = group.memory
    hosts = [scalar(tree) for tree in memory.hosts] or [0.0] * len(outer)
    added = [scalar(term) for term in outer]
    device = max(scalar(tree) + (one if where == "device" else 0.0) for tree, one in zip(memory.trees, added, strict=True))
    host = max(one + (more if where == "host" else 0.0) for one, more in zip(hosts, added, strict=True))
    room = scalar(np.asarray(host_capacity(group.cluster, group.plan)))
    return {
        "device": device, "capacity": memory.capacity, "host": host or None, "host_capacity": room if np.isfinite(room) else None,
        "fits": device <= memory.capacity * (1.0 - margin) and host <= room,
    }  # fmt: skip
