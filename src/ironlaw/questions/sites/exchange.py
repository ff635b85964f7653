"""The exchange of gradients between sites: its bandwidth, latency and time, and other ways to exchange beside it."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from ironlaw import units
from ironlaw.catalog import load
from ironlaw.catalog.sourced import ASKED, Sourced
from ironlaw.errors import QuestionError, ValueRangeError
from ironlaw.law import collectives, cost, states, wide_area
from ironlaw.question.assumptions import Assumptions, assume
from ironlaw.questions.answer import Column, Table
from ironlaw.questions.sites.options import GRADIENT_BYTES
from ironlaw.questions.sites.places import Place, distance, order_ring, ring_links
from ironlaw.terms import Term, leaf

LINKS = (
    Column("link", "link"), Column("metres", "distance", "m"), Column("light", "light, vacuum", "s"),
    Column("fibre", "fibre, one way", "s"),
)  # fmt: skip
EXCHANGES = (
    Column("exchange", "exchange"), Column("gradients", "format"), Column("every", "every, steps", "1"), Column("fragments", "pieces", "1"),
    Column("beside", "overlap, steps", "1"), Column("exposed", "waiting per step", "s"), Column("share", "waiting", "%"),
    Column("seconds", "run", "s"), Column("usd", "USD", "USD"),
)  # fmt: skip


@dataclass(frozen=True)
class Exchange:
    """How sites exchange gradients."""

    way: str  # ring, tree or pipe
    gradients: str  # format sent
    every: float  # steps between exchanges
    fragments: float  # pieces that are exchanged at different times
    beside: float  # steps of computation that an exchange overlaps

    def describe(self) -> str:
        """The frequency and overlap in words."""
        if self.every == 1:
            return "every step, " + (f"{self.beside:g} of it overlapped" if self.beside else "not overlapped")
        pieces = f" in {self.fragments:g} pieces" if self.fragments > 1 else ""
        return f"every {self.every:g} steps{pieces} (DiLoCo)" + (f", overlapping {self.beside:g} steps" if self.beside else "")


@dataclass(frozen=True, eq=False)
class Network:
    """The wide-area network between sites."""

    order: list[Place]  # round the ring
    bandwidth: float  # of the slowest site [B/s]
    latency: float  # one way between neighbours [s]
    links: list[dict[str, Any]]  # rows of the table
    terms: list[Term]
    warnings: list[str]

    def exchange_time(self, way: str, size: float) -> Term:
        """Time of one exchange of so many bytes among all sites."""
        n = float(len(self.order))
        if way == "pipe":
            return leaf("exchange", wide_area.shared_pipe, "s", n=n, size=size, bandwidth=self.bandwidth)
        law = collectives.ring_all_reduce if way == "ring" else wide_area.tree_all_reduce
        return leaf("exchange", law, "s", n=n, size=size, bandwidth=self.bandwidth, latency=self.latency)


def bind_exchange(given: dict[str, Any]) -> Exchange:
    """The exchange of the question, checked."""
    exchange = Exchange(
        given.get("exchange", "ring"), given.get("gradients", "bf16"), given.get("every", 1.0), given.get("fragments", 1.0),
        given.get("beside", 0.0),
    )  # fmt: skip
    every, fragments = exchange.every, exchange.fragments
    if fragments > every:
        raise QuestionError(
            f"--fragments {fragments:g} with --every {every:g}: at most one piece a step; give --every {fragments:g} or more"
        )
    if exchange.beside > every / fragments:
        raise QuestionError(
            f"--beside {exchange.beside:g}: an exchange starts every {every / fragments:g} steps and must end before the next;"
            " give at most that"
        )
    return exchange


def each_site(given: dict[str, Any], name: str, places: list[Place]) -> list[float]:
    """The values of an option, one per site."""
    values = list(given[name])
    if len(values) == 1:
        return values * len(places)
    if len(values) != len(places):
        raise QuestionError(f"--{name.replace('_', '-')} lists {len(values)} values for {len(places)} sites: give one, or one for each")
    return values


def bind_network(given: dict[str, Any], places: list[Place], folders: tuple[str, ...], notes: Assumptions) -> Network:
    """The ring of the sites, its bandwidth, and the latency of its longest link."""
    fibre = load.record("fibres", "long-haul", folders)
    route = fibre.route_factor
    if "route_factor" in given:
        route = Sourced(given["route_factor"], "1", str(given["route_factor"]), ASKED)
        if "latency" in given:
            raise QuestionError("--route-factor has no effect with --latency: leave one of them out")
    if any(place.latitude is None for place in places):
        if "route_factor" in given:
            raise QuestionError("--route-factor needs places: name the sites, or give --latency")
        unknown = "places are unknown, so the latency of an exchange is not counted: give --latency or name the sites"
        warnings = [] if "latency" in given else [unknown]
        return Network(places, _slowest_rate(given, places), given.get("latency", 0.0), [], [], warnings)
    order = order_ring(places)
    distances = {f"{a.name} - {b.name}": distance(a, b) for a, b in ring_links(order)}
    longest = max(distances.values(), key=lambda term: float(term.value))
    assume(notes, "route_factor", route.text, "given" if "route_factor" in given else "default")
    light = leaf("light", wide_area.light_time, "s", distance=longest.value)
    terms, latency = [longest, light], given.get("latency")
    if latency is None:
        law = wide_area.fibre_time
        terms.append(leaf("latency", law, "s", distance=longest.value, route_factor=route, refractive_index=fibre.index))
        latency = float(terms[-1].value)
    elif latency < float(light.value):
        raise ValueRangeError(
            f"--latency is {units.show(latency, 's', 3)}, must be at least {units.show(float(light.value), 's', 3)}: light in vacuum"
            f" takes that for the {units.show(float(longest.value), 'm', 4)} of the longest link"
        )
    links = [_link_row(name, term, route, fibre.index) for name, term in distances.items()]
    return Network(order, _slowest_rate(given, places), latency, links, terms, [])


def _link_row(name: str, metres: Term, route: Sourced, index: Sourced) -> dict[str, Any]:
    """A row for one link of the ring."""
    return {
        "link": name, "metres": float(metres.value), "light": float(wide_area.light_time(metres.value)),
        "fibre": float(wide_area.fibre_time(metres.value, route.value, index.value)),
    }  # fmt: skip


def _slowest_rate(given: dict[str, Any], places: list[Place]) -> float:
    """Bandwidth of the slowest site: its link, or its part of a shared network. The law of a pipe takes the undivided rate."""
    own_link = min(each_site(given, "wan_bandwidth", places)) if "wan_bandwidth" in given else math.inf
    shared = given.get("shared_bandwidth", math.inf)
    if given.get("exchange") == "pipe":
        if "shared_bandwidth" not in given or "wan_bandwidth" in given:
            raise QuestionError("--exchange pipe is one link that all sites share: give --shared-bandwidth, not --wan-bandwidth")
        if "latency" in given:
            raise QuestionError("--exchange pipe has no latency: leave --latency out, or give --exchange ring")
        return float(shared)
    return float(min(own_link, shared / len(places)))


def compare_exchanges(
    chosen: Exchange, network: Network, parameters: float, compute: float, steps: float, gpus: float, price: Sourced
) -> Table:
    """The same run with other exchanges, the chosen one first."""
    way = chosen.way
    methods = (way,) if way == "pipe" else ("ring", "tree")
    others = [Exchange(other, gradients, 1.0, 1.0, 0.0) for other in methods for gradients in ("bf16", "int8")]
    others += [Exchange(way, "bf16", 1.0, 1.0, 1.0), Exchange(way, "bf16", 100.0, 1.0, 0.0), Exchange(way, "bf16", 500.0, 1.0, 0.0)]
    others.append(Exchange(way, "int8", 100.0, 10.0, 5.0))
    rows = []
    for e in dict.fromkeys([chosen, *others]):
        size = float(states.state(parameters, GRADIENT_BYTES[e.gradients], e.fragments))
        time = float(network.exchange_time(e.way, size).value)
        exposed = float(wide_area.exposed_per_step(time, e.beside * compute, e.every, e.fragments))
        seconds = steps * (compute + exposed)
        rows.append({
            "exchange": e.way, "gradients": e.gradients, "every": e.every, "fragments": e.fragments, "beside": e.beside,
            "exposed": exposed, "share": float(wide_area.communication_share(exposed, compute)), "seconds": seconds,
            "usd": float(cost.rental(gpus, seconds, price.value)),
        })  # fmt: skip
    return Table("ways", "Other exchanges (the first is the chosen one)", EXCHANGES, rows)
