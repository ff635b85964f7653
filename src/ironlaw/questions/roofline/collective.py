"""A collective under the roof of its links: time, algorithm bandwidth and bus bandwidth."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ironlaw import units
from ironlaw.cautions.record import Sentence
from ironlaw.errors import ValueRangeError
from ironlaw.estimate.bind.cluster import cluster_of
from ironlaw.estimate.fabric import group_links
from ironlaw.law import collectives
from ironlaw.plan import column, plan_with
from ironlaw.question.assumptions import Assumptions
from ironlaw.question.forms import need
from ironlaw.questions.answer import Answer, Column, Table, filled_columns
from ironlaw.questions.roofline import roofs
from ironlaw.questions.roofline.roofs import show
from ironlaw.terms import Term, leaf, scalar

TIMES = (
    Column("what", "time"), Column("time", "", "s"), Column("algorithm_bandwidth", "algorithm bandwidth", "B/s"),
    Column("bus_bandwidth", "bus bandwidth", "B/s"), Column("fraction", "of the roof", "%"), Column("all", "all of them", "s"),
)  # fmt: skip


@dataclass(frozen=True, eq=False)
class LinkRoof:
    """The link that limits a collective."""

    name: str  # scale-up or nic
    least: Term  # time if the link were fully used
    expected: Term  # time of measured collectives
    sentence: str


def answer(_question: str, values: dict[str, Any], folders: tuple[str, ...]) -> Answer:
    """The time of one collective at its roof, as measured kernels run it, and as the user measured it."""
    need(values, "size", "ranks")
    operation, size, ranks, count = values["collective"], values["size"], values["ranks"], values.get("count", 1.0)
    if ranks < 2:
        raise ValueRangeError("--ranks is 1, a collective needs at least 2")
    if "on" not in values:
        need(values, "measured")  # without links there is only a measured time to print
    notes: Assumptions = []
    factor = leaf("traffic factor", group_links.COLLECTIVES[operation].factor, "1", n=ranks)
    text = f"{operation} of {units.show(size, 'B', 4)} ({_show_decimal(size)}) among {ranks:.0f}: "
    told = {"operation": operation, "bytes": size, "ranks": ranks, "factor": scalar(factor)}
    headline: list[str] = [Sentence(f"{text}each rank sends {scalar(factor):.4g} times that", "traffic", told)]
    roof: LinkRoof | None = None
    times: dict[str, float] = {}
    terms, feasible = [factor], True
    if "on" in values:
        roof = _bind_link_roof(values, factor, folders, notes)
        times |= {f"at the {roof.name} roof": scalar(roof.least), "expected": scalar(roof.expected)}
        headline.append(Sentence(roof.sentence, "time", {"least_seconds": scalar(roof.least), "expected_seconds": scalar(roof.expected)}))
        terms += [roof.least, roof.expected]
    if "measured" in values:
        times["measured"] = values["measured"]
        lines, more, feasible = _judge(values, factor, roof)
        headline, terms = [*headline, *lines], [*terms, *more]
    if count > 1.0:
        basis, time = list(times.items())[-1]
        terms.append(leaf("time of all", _repeated, "s", count=count, time=time))
        headline.append(f"{count:,.0f} of them take {show(terms[-1])} ({basis}); at each one ranks wait for the slowest")
    lines, passes = roofs.compare_with_baseline(values)
    headline, feasible = [*headline, *lines], feasible and passes
    rows = [
        {
            "what": basis,
            "time": time,
            "algorithm_bandwidth": float(collectives.algorithm_bandwidth(size, time)),
            "bus_bandwidth": float(collectives.bus_bandwidth(size, time, factor.value)),
            "fraction": None if roof is None else scalar(roof.least) / time,
            "all": time * count,
        }
        for basis, time in times.items()
    ]
    columns = filled_columns([column for column in TIMES if column.key != "all" or count > 1.0], rows)
    title = f"{operation} among {ranks:.0f}" + (f" on {values['on']}" if "on" in values else "")
    return Answer(title, headline, [Table("times", "Times", columns, rows)], terms, {"bytes": size}, notes, (), feasible, folders)


def _bind_link_roof(values: dict[str, Any], factor: Term, folders: tuple[str, ...], notes: Assumptions) -> LinkRoof:
    """The link of the ranks, its least time, and the time of measured collectives."""
    cluster = cluster_of(values, folders, notes)
    size, ranks = values["size"], values["ranks"]
    n = column(ranks)  # one tensor-parallel group, whose ranks are next to each other
    expected = group_links.collective(cluster, plan_with(gpus=n, tp=n), "expected time", values["collective"], n, size, 1.0)
    inner = scalar(expected.inputs["inner_ranks"])
    inside = inner >= ranks
    rate = cluster.node.scale_up_bandwidth if inside else group_links.nic_rate(cluster)
    sent = size * scalar(factor) / (1.0 if inside else inner)  # out of a domain the NIC of every accelerator sends its share
    least = leaf("least time", collectives.point_to_point, "s", "network", size=sent, bandwidth=rate, latency=0.0)
    name = "scale-up" if inside else "nic"
    rails = "" if inside or inner <= 1.0 else f" on each of {inner:.0f} rails"
    sentence = f"the {name} roof of {units.show(rate.value, 'B/s', 4)}{rails} allows {show(least)}; expected: {show(expected)}"
    return LinkRoof(name, least, expected, sentence)


def _judge(values: dict[str, Any], factor: Term, roof: LinkRoof | None) -> tuple[list[str], list[Term], bool]:
    """Headline and terms of a measured time, and whether it is possible."""
    measured, size = values["measured"], values["size"]
    algorithm = leaf("algorithm bandwidth", collectives.algorithm_bandwidth, "B/s", size=size, time=measured)
    bus = leaf("bus bandwidth", collectives.bus_bandwidth, "B/s", size=size, time=measured, factor=factor.value)
    caveat = " (equal with 2 ranks, not with more)" if scalar(factor) == 1.0 else ""
    lines = [
        f"measured {units.show(measured, 's', 4)}: algorithm bandwidth {_show_bandwidth(algorithm)}, bus bandwidth"
        f" {_show_bandwidth(bus)}{caveat}; compare the bus bandwidth with links"
    ]
    if roof is None:
        return lines, [algorithm, bus], True
    share = scalar(roof.least) / measured
    if share > 1.0:
        verdict = "impossible; check the time, the size, the ranks and the link"
    elif share >= roofs.NEAR:
        verdict = "near it, only fewer bytes help"
    else:
        verdict = "latency, launches or waiting for a late rank set the time"
    of_roof = f"{share:.0%} of the roof" if share <= 1.0 else f"{share:.3g} times the roof"
    return [*lines, f"{of_roof}: {verdict}"], [algorithm, bus], share <= 1.0


def _show_decimal(size: float) -> str:
    """Bytes with decimal prefixes, as links are sold."""
    return f"{size / 1e9:,.4g} GB" if size >= 1e9 else f"{size / 1e6:,.4g} MB"


def _show_bandwidth(term: Term) -> str:
    """A bandwidth in GB/s and in GiB/s, which are easily confused."""
    return f"{scalar(term) / 1e9:.4g} GB/s ({scalar(term) / 2**30:.4g} GiB/s)"


def _repeated(count: Any, time: Any) -> Any:
    """Time of all runs: ``count time``."""
    return count * time
