"""A collective under the roof of its links: bytes, time, algorithm and bus bandwidth apart, and what many of them cost."""

from __future__ import annotations

from typing import Any

from ironlaw import units
from ironlaw.errors import ValueRangeError
from ironlaw.estimate import wires
from ironlaw.estimate.bind.cluster import bind_precision, cluster_of
from ironlaw.law import collectives
from ironlaw.plan import BY_RULE, Plan, column
from ironlaw.question.assumptions import Assumptions
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


def answer(question: str, values: dict[str, Any], folders: tuple[str, ...]) -> Answer:
    """The time of one collective at its roof, as measured kernels run it, and as the user measured it."""
    del question
    need(values, "size", "ranks")
    operation, size, ranks, count = values["collective"], values["size"], values["ranks"], values.get("count", 1.0)
    if ranks < 2:
        raise ValueRangeError("--ranks is 1, a collective needs at least 2")
    if "on" not in values:
        need(values, "measured")  # without links a time is all there is to know
    notes: Assumptions = []
    factor = leaf("traffic factor", wires.COLLECTIVES[operation].factor, "1", n=ranks)
    headline = [
        f"{operation} of {units.show(size, 'B', 4)} ({size / 1e6:,.4g} MB) among {ranks:.0f}: "
        f"each rank sends {float(factor.value):.4g} times that"
    ]
    roof: Term | None = None
    timed: list[tuple[str, float]] = []
    terms: list[Term] = [factor]
    if "on" in values:
        link, roof, expected, told = _links(values, factor, folders, notes)
        timed += [(f"at the {link} roof", float(roof.value)), ("expected", float(expected.value[0]))]
        headline.append(told)
        terms += [roof, expected]
    possible = True
    if "measured" in values:
        timed.append(("measured", values["measured"]))
        lines, more, possible = _judge(values, factor, roof)
        headline, terms = [*headline, *lines], [*terms, *more]
    if count > 1.0:
        what, time = timed[-1]
        every = leaf("time of all", _repeated, "s", count=count, time=time)
        headline.append(
            f"{count:,.0f} of them are as many points where ranks wait for each other: {units.show(float(every.value), 's', 4)} ({what})"
        )
        terms.append(every)
    if "baseline" in values:
        text, passes = roofs.regression(values)
        headline, possible = [*headline, text], possible and passes
    rows = [
        {
            "what": what,
            "time": time,
            "algorithm_bandwidth": float(collectives.algorithm_bandwidth(size, time)),
            "bus_bandwidth": float(collectives.bus_bandwidth(size, time, factor.value)),
            "fraction": None if roof is None else float(roof.value) / time,
            "all": time * count,
        }
        for what, time in timed
    ]
    shown = tuple(c for c in ROWS if any(row.get(c.key) is not None for row in rows) and (c.key != "all" or count > 1.0))
    title = f"{operation} among {ranks:.0f}" + (f" on {values['on']}" if "on" in values else "")
    return Answer(title, headline, [Table("times", "Times", shown, rows)], terms, {"bytes": size}, notes, (), possible, folders)


def _links(values: dict[str, Any], factor: Term, folders: tuple[str, ...], notes: Assumptions) -> tuple[str, Term, Term, str]:
    """The link that binds, the least time over it, what collectives as measured take, and the sentence about them."""
    cluster = cluster_of({**values, "precision": bind_precision(values["on"], folders)}, folders, notes)
    size, ranks = values["size"], values["ranks"]
    expected = wires.collective(cluster, _plan(ranks), "expected time", values["collective"], column(ranks), size, 1.0)
    inner = float(plain(expected.inputs["inner_ranks"])[0])
    inside = inner >= ranks
    rate = cluster.node.scale_up_bandwidth if inside else wires.nic_rate(cluster)
    sent = size * float(factor.value) / (1.0 if inside else inner)  # out of a domain every accelerator's NIC carries its share
    roof = leaf("least time", collectives.point_to_point, "s", "network", size=sent, bandwidth=rate, latency=0.0)
    link = "scale-up" if inside else "nic"
    rails = "" if inside else f" on each of {inner:.0f} rails"
    told = (
        f"the {link} roof of {units.show(rate.value, 'B/s', 4)}{rails} allows {units.show(float(roof.value), 's', 4)}; "
        f"expected: {units.show(float(expected.value[0]), 's', 4)}"
    )
    return link, roof, expected, told


def _judge(values: dict[str, Any], factor: Term, roof: Term | None) -> tuple[list[str], list[Term], bool]:
    """What a measured time says: both bandwidths, and how near the roof it is."""
    measured, size = values["measured"], values["size"]
    algorithm = leaf("algorithm bandwidth", collectives.algorithm_bandwidth, "B/s", size=size, time=measured)
    bus = leaf("bus bandwidth", collectives.bus_bandwidth, "B/s", size=size, time=measured, factor=factor.value)
    same = " (the same number with 2 ranks, not with more)" if float(factor.value) == 1.0 else ""
    lines = [
        f"measured {units.show(measured, 's', 4)}: algorithm bandwidth {_gb(algorithm)}, bus bandwidth {_gb(bus)}{same}; "
        "compare the bus bandwidth with links"
    ]
    if roof is None:
        return lines, [algorithm, bus], True
    share = float(roof.value) / measured
    if share > 1.0:
        judged = "impossible; the time, the size, the ranks or the link is wrong"
    elif share >= roofs.NEAR:
        judged = "near it only fewer bytes help"
    else:
        judged = "latency, launches or waiting for a late rank set the time"
    return [*lines, f"{share:.0%} of the roof: {judged}"], [algorithm, bus], share <= 1.0


def _plan(ranks: float) -> Plan:
    """A job of one tensor-parallel group: the ranks stand next to each other."""
    one, n = column(1.0), column(ranks)
    others = dict.fromkeys(Plan.__dataclass_fields__, one)
    return Plan(**{**others, "gpus": n, "tp": n, "first_stage_layers": BY_RULE, "last_stage_layers": BY_RULE})


def _gb(term: Term) -> str:
    """A bandwidth in GB/s and in GiB/s, which tools mix up."""
    return f"{float(term.value) / 1e9:.4g} GB/s ({float(term.value) / 2**30:.4g} GiB/s)"


def _repeated(count: Any, time: Any) -> Any:
    """What all of them take: ``count time``."""
    return count * time
