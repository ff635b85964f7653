"""The exchange of gradients between sites: its bandwidth, latency and time, and other ways to exchange beside it."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from typing import Any

from ironlaw import units
from ironlaw.catalog import load
from ironlaw.catalog.records import Fibre
from ironlaw.catalog.sourced import ASKED, Sourced
from ironlaw.errors import NoEffectError, QuestionError, ValueRangeError
from ironlaw.law import collectives, cost, states, wide_area
from ironlaw.question.assumptions import Assumptions, assume
from ironlaw.questions.answer import Column, Table
from ironlaw.questions.sites.options import GRADIENT_BYTES
from ironlaw.questions.sites.places import Place, distance, each_site, order_ring, ring_links
from ironlaw.terms import Term, leaf, scalar

LINKS = (
    Column("link", "link"), Column("metres", "distance", "m"), Column("light", "light, vacuum", "s"),
    Column("fibre", "fibre, one way", "s"),
)  # fmt: skip
EXCHANGES = (
    Column("exchange", "exchange"), Column("gradients", "format"), Column("every", "every, steps", "1"), Column("fragments", "pieces", "1"),
    Column("beside", "overlap, steps", "1"), Column("sent", "sent, each site", "decimal B"), Column("time", "one exchange", "s"),
    Column("exposed", "waiting per step", "s"), Column("share", "waiting", "%"), Column("waiting", "waiting, run", "s"),
    Column("seconds", "run", "s"), Column("usd", "USD", "USD"), Column("idle", "USD for waiting", "USD"),
)  # fmt: skip
LATENCIES = (
    Column("pair", "pair"), Column("metres", "distance", "m"), Column("light", "light, one way", "s"),
    Column("waiting", "over the run", "s"), Column("gpu_seconds", "accelerator time", "s"), Column("usd", "USD", "USD"),
)  # fmt: skip
INTERVALS = (1.0, 3.0, 10.0, 30.0, 100.0, 300.0, 1000.0)  # steps between exchanges that are tabled
MOST_PAIRS = 28  # of the table of latency: eight sites


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

    def tensor(self, parameters: float) -> Term:
        """Bytes of one exchange: of one piece."""
        return leaf(
            "gradients", states.state, "B", parameters=parameters, bytes_per_parameter=GRADIENT_BYTES[self.gradients], shards=self.fragments
        )


@dataclass(frozen=True, eq=False)
class Network:
    """The wide-area network between some sites."""

    order: list[Place]  # round the ring
    rate: Term  # of data between the slowest site and the others; of the undivided line for a pipe
    latency: float  # one way between neighbours [s]
    links: list[dict[str, Any]]  # rows of the table
    terms: list[Term]

    def exchange_time(self, way: str, size: float) -> Term:
        """Time of one exchange of so many bytes among all sites."""
        n, bandwidth = float(len(self.order)), scalar(self.rate)
        if way == "pipe":
            return leaf("exchange", wide_area.shared_pipe, "s", n=n, size=size, bandwidth=bandwidth)
        law = collectives.ring_all_reduce if way == "ring" else wide_area.tree_all_reduce
        return leaf("exchange", law, "s", n=n, size=size, bandwidth=bandwidth, latency=self.latency)

    def sent(self, way: str, size: float) -> Term:
        """Bytes that each site sends in one exchange."""
        if way == "pipe":
            return Term("sent", size, "B")
        return leaf("sent", wide_area.sent_bytes, "B", n=float(len(self.order)), size=size)


@dataclass(frozen=True, eq=False)
class Wan:
    """What the question says of the lines between its sites; ``join`` makes the network of some of them."""

    way: str
    bandwidth: dict[str, float]  # of the line of each site [B/s]; infinite where only the shared network counts
    shared: float  # [B/s]
    efficiency: Sourced
    route: Sourced
    index: Sourced
    latency: float | None  # given, one way [s]
    located: bool

    def join(self, places: Sequence[Place]) -> Network:
        """The ring of some sites, its data rate, and the latency of its longest link."""
        line = min(self.bandwidth[place.name] for place in places)
        line = self.shared if self.way == "pipe" else min(line, self.shared / len(places))
        rate = leaf("data rate", wide_area.data_rate, "B/s", bandwidth=float(line), efficiency=self.efficiency)
        if len(places) == 1 or not self.located:
            return Network(list(places), rate, self.latency or 0.0, [], [rate])
        order = order_ring(places)
        distances = {f"{a.name} - {b.name}": distance(a, b) for a, b in ring_links(order)}
        longest = max(distances.values(), key=lambda term: float(term.value))
        light = leaf("light", wide_area.light_time, "s", distance=longest.value)
        terms, latency = [longest, light], self.latency
        if latency is None:
            law = wide_area.fibre_time
            terms.append(leaf("latency", law, "s", distance=longest.value, route_factor=self.route, refractive_index=self.index))
            latency = float(terms[-1].value)
        elif latency < float(light.value):
            raise ValueRangeError(
                f"--latency is {units.show(latency, 's', 3)}, must be at least {units.show(float(light.value), 's', 3)}: light in vacuum"
                f" takes that for the {units.show(float(longest.value), 'm', 4)} of the longest link"
            )
        links = [_link_row(name, term, self.route, self.index) for name, term in distances.items()]
        return Network(order, rate, latency, links, [*terms, rate])


def bind_exchange(given: dict[str, Any]) -> Exchange:
    """The exchange of the question, checked."""
    exchange = Exchange(
        given.get("exchange", "ring"), given.get("gradients", "bf16"), given.get("inner_steps", 1.0), given.get("outer_fragments", 1.0),
        given.get("overlap_steps", 0.0),
    )  # fmt: skip
    every, fragments = exchange.every, exchange.fragments
    if fragments > every:
        raise QuestionError(
            f"--outer-fragments {fragments:g} with --inner-steps {every:g}: at most one piece a step; "
            f"give --inner-steps {fragments:g} or more"
        )
    if exchange.beside > every / fragments:
        raise QuestionError(
            f"--overlap-steps {exchange.beside:g}: an exchange starts every {every / fragments:g} steps and must end before the next;"
            " give at most that"
        )
    if "outer_state" in given and every == 1:
        raise NoEffectError("--outer-state has no effect with an exchange every step: give --inner-steps, such as --inner-steps 100")
    return exchange


def bind_wan(given: dict[str, Any], places: list[Place], folders: tuple[str, ...], notes: Assumptions) -> Wan:
    """The lines between the sites: their rate, what of it carries data, and their latency."""
    fibre: Fibre = load.record("fibres", "long-haul", folders)
    located = all(place.latitude is not None for place in places)
    _check_pipe(given)
    bandwidth = _line_rates(given, places)
    if "route_factor" in given and not located:
        raise QuestionError("--route-factor needs places: name the sites, or give --latency")
    route = _given_or("route_factor", given, fibre.route_factor)
    efficiency = _given_or("wan_efficiency", given, fibre.efficiency)
    if located:
        assume(notes, "route_factor", route.text, "given" if "route_factor" in given else "default")
    if "wan_efficiency" not in given:
        assume(notes, "wan_efficiency", f"{efficiency.value:.1%} (what headers leave)", "default")
    return Wan(
        way=given.get("exchange", "ring"),
        bandwidth=bandwidth,
        shared=given.get("shared_bandwidth", math.inf),
        efficiency=efficiency,
        route=route,
        index=fibre.index,
        latency=given.get("latency"),
        located=located,
    )


def _check_pipe(given: Mapping[str, Any]) -> None:
    """Refuse what one shared link has not: a line of each site, and a latency."""
    if given.get("exchange") != "pipe":
        return
    if "shared_bandwidth" not in given or "wan_bandwidth" in given:
        raise QuestionError("--exchange pipe is one link that all sites share: give --shared-bandwidth, not --wan-bandwidth")
    if "latency" in given:
        raise QuestionError("--exchange pipe has no latency: leave --latency out, or give --exchange ring")


def _line_rates(given: dict[str, Any], places: list[Place]) -> dict[str, float]:
    """The bandwidth of the line of each site [B/s]; infinite where the question gives none, so that only the shared network counts."""
    rates = each_site(given, "wan_bandwidth", places, None if "wan_bandwidth" in given else math.inf)
    for place, rate in zip(places, rates, strict=True):
        if rate is None:
            raise QuestionError(f"--wan-bandwidth has no value for {place.name}")
    return {place.name: rate for place, rate in zip(places, rates, strict=True)}


def _given_or(name: str, given: dict[str, Any], default: Sourced) -> Sourced:
    """The given number, or the record's."""
    return Sourced(given[name], "1", str(given[name]), ASKED) if name in given else default


def _link_row(name: str, metres: Term, route: Sourced, index: Sourced) -> dict[str, Any]:
    """A row for one link of the ring."""
    return {
        "link": name, "metres": float(metres.value), "light": float(wide_area.light_time(metres.value)),
        "fibre": float(wide_area.fibre_time(metres.value, route.value, index.value)),
    }  # fmt: skip


def compare_exchanges(
    chosen: Exchange, network: Network, parameters: float, compute: float, steps: float, rents: list[tuple[float, float]]
) -> Table:
    """The same run with other exchanges, the chosen one first; ``rents``: accelerators and price [USD/s] of each site."""
    way = chosen.way
    methods = (way,) if way == "pipe" else ("ring", "tree")
    others = [Exchange(other, gradients, 1.0, 1.0, 0.0) for other in methods for gradients in ("bf16", "int8")]
    others += [Exchange(way, "bf16", 1.0, 1.0, 1.0), Exchange(way, "bf16", 100.0, 1.0, 0.0), Exchange(way, "bf16", 500.0, 1.0, 0.0)]
    others.append(Exchange(way, "int8", 100.0, 10.0, 5.0))
    rows = [_exchange_row(e, network, parameters, compute, steps, rents) for e in dict.fromkeys([chosen, *others])]
    return Table("ways", "Other exchanges (the first is the chosen one; USD without traffic and electricity)", EXCHANGES, rows)


def tabulate_intervals(
    chosen: Exchange, network: Network, parameters: float, compute: float, steps: float, rents: list[tuple[float, float]]
) -> Table:
    """The chosen exchange at other intervals; for the JSON and the page alone."""
    least = max(chosen.fragments, chosen.beside * chosen.fragments)  # an exchange must end before the next one of its piece
    stops = sorted({chosen.every, *(every for every in INTERVALS if every >= least)})
    rows = [_exchange_row(replace(chosen, every=every), network, parameters, compute, steps, rents) for every in stops]
    return Table("intervals", "The chosen exchange at other intervals", EXCHANGES, rows, on_page=False)


def _exchange_row(
    e: Exchange, network: Network, parameters: float, compute: float, steps: float, rents: list[tuple[float, float]]
) -> dict[str, Any]:
    """The run with one exchange."""
    size = scalar(e.tensor(parameters))
    time = scalar(network.exchange_time(e.way, size))
    exposed = float(wide_area.exposed_per_step(time, e.beside * compute, e.every, e.fragments))
    seconds = steps * (compute + exposed)
    rent = [sum(float(cost.rental(gpus, t, price)) for gpus, price in rents) for t in (seconds, steps * exposed)]
    return {
        "exchange": e.way, "gradients": e.gradients, "every": e.every, "fragments": e.fragments, "beside": e.beside,
        "sent": scalar(network.sent(e.way, size)), "time": time, "exposed": exposed,
        "share": float(wide_area.communication_share(exposed, compute)), "waiting": steps * exposed, "seconds": seconds,
        "usd": rent[0], "idle": rent[1],
    }  # fmt: skip


def tabulate_latency(wan: Wan, places: Sequence[Place], exchanges: float, rents: list[tuple[float, float]]) -> Table | None:
    """The least that distance costs: light in vacuum once an exchange, one way, for each pair of sites; None without places."""
    pairs = list(combinations(places, 2))
    if not wan.located or len(pairs) > MOST_PAIRS:
        return None
    rows = []
    for a, b in pairs:
        metres = scalar(distance(a, b))
        light = float(wide_area.light_time(metres))
        waiting = exchanges * light
        rows.append({
            "pair": f"{a.name} - {b.name}", "metres": metres, "light": light, "waiting": waiting,
            "gpu_seconds": waiting * sum(gpus for gpus, _ in rents),
            "usd": sum(float(cost.rental(gpus, waiting, price)) for gpus, price in rents),
        })  # fmt: skip
    return Table("least_latency", "Least latency: light one way, once an exchange", LATENCIES, rows)
