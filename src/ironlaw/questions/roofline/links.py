"""A collective under the roof of its links: bytes, time, algorithm and bus bandwidth apart, and what many of them cost."""

from __future__ import annotations

from typing import Any

from ironlaw import units
from ironlaw.errors import ValueRangeError
from ironlaw.estimate import tiers
from ironlaw.estimate.bind import Assumptions, bind_cluster, bind_precision
from ironlaw.law import collectives
from ironlaw.plan import Plan, column
from ironlaw.questions.answer import Answer, Column, Table, need
from ironlaw.questions.roofline import roofs
from ironlaw.terms import Term, leaf, plain

ROWS = (
    Column("what", "time"),
    Column("time", "", "s"),
    Column("algorithm_bandwidth", "algorithm bandwidth", "B/s"),
    Column("bus_bandwidth", "bus bandwidth", "B/s"),
    Column("fraction", "of the roof", "%"),
    Column("all", "all of them", "s"),
)
_FACTORS: dict[str, Any] = {"all_reduce": collectives.all_reduce_factor}


def answer(question: str, values: dict[str, Any], folders: tuple[str, ...]) -> Answer:
    """The time of one collective at its roof, as measured kernels run it, and as the user measured it."""
    del question
    need(values, "size", "ranks")
    operation, size, ranks, count = values["collective"], values["size"], values["ranks"], values.get("count", 1.0)
    if ranks < 2:
        raise ValueRangeError("--ranks is 1, a collective needs at least 2")
    if "on" not in values:
        need(values, "measured")  # without links a time is all there is to know
    law = _FACTORS.get(operation, collectives.one_way_factor)
    factor = leaf("traffic factor", law, "1", n=ranks)
    notes: Assumptions = []
    rows: list[dict[str, Any]] = []
    terms: list[Term] = [factor]
    headline = [
        f"{operation} of {units.show(size, 'B', 4)} ({size / 1e6:,.4g} MB) among {ranks:.0f}: each rank sends {float(factor.value):.4g} times that"
    ]
    roof = None

    def add(what: str, time: float) -> tuple[Term, Term]:
        algorithm = leaf(f"algorithm bandwidth, {what}", collectives.algorithm_bandwidth, "B/s", size=size, time=time)
        bus = leaf(f"bus bandwidth, {what}", collectives.bus_bandwidth, "B/s", size=size, time=time, factor=factor.value)
        row = {
            "what": what,
            "time": time,
            "algorithm_bandwidth": float(algorithm.value),
            "bus_bandwidth": float(bus.value),
            "all": time * count,
        }
        rows.append(row | {"fraction": None if roof is None else least / time})
        return algorithm, bus

    least = 0.0
    if "on" in values:
        cluster = bind_cluster({**values, "precision": bind_precision(values["on"], folders)}, folders, notes)
        plan = _plan(ranks)
        expected = tiers.collective(cluster, plan, "expected time", operation, column(ranks), size, 1.0)
        inner = float(plain(expected.inputs["inner_ranks"])[0])
        link = "scale-up" if inner >= ranks else "nic"
        rate = cluster.node.scale_up_bandwidth if link == "scale-up" else tiers.nic_rate(cluster)
        rails = 1.0 if link == "scale-up" else inner  # every accelerator of a domain has a NIC of its own for its share
        roof = leaf(
            "least time", collectives.point_to_point, "s", "network", size=size * float(factor.value) / rails, bandwidth=rate, latency=0.0
        )
        least = float(roof.value)
        add(f"at the {link} roof", least)
        add("expected", float(expected.value[0]))
        headline.append(
            f"the {link} roof of {units.show(rate.value, 'B/s', 4)} allows {units.show(least, 's', 4)}; "
            f"collectives as measured take {units.show(float(expected.value[0]), 's', 4)}"
        )
        terms += [roof, expected]
    possible = True
    if "measured" in values:
        measured = values["measured"]
        algorithm, bus = add("measured", measured)
        terms += [algorithm, bus]
        same = " (the same number with 2 ranks, not with more)" if ranks == 2 and operation == "all_reduce" else ""
        headline.append(
            f"measured {units.show(measured, 's', 4)}: algorithm bandwidth {_gb(algorithm)}, bus bandwidth {_gb(bus)}{same}; compare the "
            "bus bandwidth with links"
        )
        if roof is not None:
            share = least / measured
            possible = share <= 1.0
            near = (
                "near the roof: only fewer bytes help"
                if share >= roofs.NEAR
                else "latency, launches or waiting for a late rank set the time"
            )
            headline.append(
                f"{share:.0%} of the roof: {near if possible else 'impossible; the time, the size, the ranks or the link is wrong'}"
            )
    if count > 1.0:
        one = rows[-1]
        headline.append(
            f"{count:,.0f} of them are as many points where ranks wait for each other: {units.show(one['all'], 's', 4)} ({one['what']})"
        )
        terms.append(leaf("time of all", _repeated, "s", count=count, time=one["time"]))
    if "baseline" in values:
        text, passes = roofs.regression(values)
        headline, possible = [*headline, text], possible and passes
    shown = tuple(c for c in ROWS if any(row.get(c.key) is not None for row in rows) and (c.key != "all" or count > 1.0))
    where = f" on {values['on']}" if "on" in values else ""
    return Answer(
        f"{operation} among {ranks:.0f}{where}",
        headline,
        [Table("times", "Times", shown, rows)],
        terms,
        {"bytes": size},
        notes,
        (),
        possible,
        folders,
    )


def _plan(ranks: float) -> Plan:
    """A job of one tensor-parallel group: the ranks stand next to each other."""
    one, n = column(1.0), column(ranks)
    others = dict.fromkeys(Plan.__dataclass_fields__, one)
    return Plan(**{**others, "gpus": n, "tp": n})


def _gb(term: Term) -> str:
    """A bandwidth in GB/s and in GiB/s, which tools mix up."""
    return f"{float(term.value) / 1e9:.4g} GB/s ({float(term.value) / 2**30:.4g} GiB/s)"


def _repeated(count: Any, time: Any) -> Any:
    """What all of them take: ``count time``."""
    return count * time
