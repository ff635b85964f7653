"""Training across data centres: how far they are, what an exchange takes, what waits, what it costs and draws.

Inside a site the step is that of ``ironlaw.estimate`` (or a constant MFU, simplified). Between sites gradients are exchanged every
step, or what changed since the last exchange every so many steps (DiLoCo), in pieces and beside computation (streaming).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from ironlaw import units
from ironlaw.errors import QuestionError, UnsupportedError, ValueRangeError
from ironlaw.question.options import OPTIONS as OF_ESTIMATE
from ironlaw.question.options import Option, at_least_one, one_of, positive, whole
from ironlaw.questions.answer import Answer, Column, Table, need, read
from ironlaw.questions.sites.one_site import PLAN, Inside, constant_mfu, estimated, one

BYTES = {"fp32": 4.0, "bf16": 2.0, "fp16": 2.0, "fp8": 1.0, "int8": 1.0, "int4": 0.5}  # of one gradient on its way


def _places(value: Any, flag: str) -> Any:
    from ironlaw.questions.sites.places import read_places

    return read_places(value, flag)


def _each(read_one: Any) -> Any:
    """A reader of one value for all sites, or a comma list with one for each."""

    def read_all(value: Any, flag: str) -> tuple[float, ...]:
        items = value if isinstance(value, (list, tuple)) else str(value).split(",") if isinstance(value, str) else [value]
        if not len(items):
            raise ValueRangeError(f"{flag} is empty: give one value for all sites, or one for each")
        return tuple(read_one(item.strip() if isinstance(item, str) else item, flag) for item in items)

    return read_all


def _window(value: Any, flag: str) -> float:
    number = units.parse(value, "1", flag)
    if not 0 <= number <= 1e6:
        raise ValueRangeError(f"{flag} is {value}, must be from 0 to 1e6 steps")
    return number


OPTIONS: dict[str, Option] = {
    "model": OF_ESTIMATE["model"],
    "sites": Option(_places, "comma list of catalogue names and LAT,LON pairs (degrees); or how many, places unknown", "SITES"),
    "on": OF_ESTIMATE["on"],
    "gpus": Option(_each(whole), "accelerators in all, shared out evenly; or a comma list, one for each site"),
    "tokens": replace(OF_ESTIMATE["tokens"], help="tokens of the whole run, such as 15T"),
    "global_batch_size": OF_ESTIMATE["global_batch_size"],
    "global_batch_tokens": OF_ESTIMATE["global_batch_tokens"],
    "seq_len": OF_ESTIMATE["seq_len"],
    "wan_bandwidth": Option(_each(positive("B/s")), "of a site to the others, one direction; or a comma list, one for each", "RATE"),
    "shared_bandwidth": Option(positive("B/s"), "of a network all sites share, which each gets an equal part of", "RATE"),
    "exchange": Option(one_of(("ring", "tree", "pipe")), "ring (default), tree, or pipe: document 004's model, simplified", "NAME"),
    "gradients": Option(one_of(tuple(BYTES)), "what is sent: bf16 (default), fp32, fp16, fp8, int8, int4", "TYPE"),
    "every": Option(whole, "steps between exchanges: 1 (default) data parallel, more DiLoCo", "STEPS"),
    "fragments": Option(whole, "pieces exchanged at times of their own (streaming DiLoCo; default: 1)", "N"),
    "beside": Option(_window, "steps of computation an exchange may run beside (default: 0, all waits)", "STEPS"),
    "latency": Option(positive("s"), "one way between neighbours, such as 45ms (default: light in a fibre over the longest link)", "TIME"),
    "route_factor": Option(at_least_one, "length of a fibre over the way over the ground", "X"),
    "mfu": Option(positive("1"), "simplified: steps at this constant share of the peak, 6 N FLOP a token, no estimate", "X"),
    "site_power": Option(_each(positive("W")), "power a site has, such as 20MW; or a comma list (default: the record's)", "POWER"),
    "price": OF_ESTIMATE["price"],
    "pue": OF_ESTIMATE["pue"],
    "grid": Option(OF_ESTIMATE["grid"].read, "grid of sites given without a record: region, or g/kWh (default: world)", "GRID"),
    "model_of": Option(one_of(("ten-sites",)), "ten-sites: document 004's study, as printed and corrected; takes nothing else", "NAME"),
    **{name: OF_ESTIMATE[name] for name in PLAN},
}  # fmt: skip


def sites(model: Any = None, *, catalog: tuple[str, ...] = (), **options: Any) -> Answer:
    """The answer of ``ironlaw sites``: ``sites("llama-3-70b", sites="jean-zay,el-capitan", on="h100-sxm", gpus=2048, ...)``."""
    from ironlaw.catalog import load

    return ask({"model": model, **options}, load.given_folders(catalog))


def ask(options: Mapping[str, Any], folders: tuple[str, ...] = ()) -> Answer:
    """The Answer of options as text or numbers."""
    given = read(options, OPTIONS, "sites")
    if "model_of" in given:
        if more := sorted(set(given) - {"model_of"}):
            raise QuestionError(f"--model-of ten-sites is one study with its own inputs: leave out --{more[0].replace('_', '-')}")
        from ironlaw.questions.textbook.ten_sites import study

        return study(folders)
    need(given, "model", "sites", "on", "gpus", "tokens")
    if "wan_bandwidth" not in given and "shared_bandwidth" not in given:
        raise QuestionError("the question lacks --wan-bandwidth RATE (of a site) or --shared-bandwidth RATE (of all together)")
    from ironlaw.questions.sites.places import places_of

    places = places_of(given["sites"], given.get("grid"), folders)
    if "grid" in given and not isinstance(given["sites"], int) and all(isinstance(item, str) for item in given["sites"]):
        raise QuestionError("--grid: every site named has a grid of its own; it is for sites given by LAT,LON or by number")
    every, fragments, beside = given.setdefault("every", 1.0), given.setdefault("fragments", 1.0), given.setdefault("beside", 0.0)
    if fragments > every:
        raise QuestionError(
            f"--fragments {fragments:g} with --every {every:g}: at most one piece a step; give --every {fragments:g} or more"
        )
    if beside > every / fragments:
        raise QuestionError(
            f"--beside {beside:g}: an exchange starts every {every / fragments:g} steps and must be over before the next; give at most that"
        )
    return _answer(given, places, folders)


def _shares(given: dict[str, Any], name: str, places: list[Any]) -> list[float]:
    """One value for each site."""
    values = list(given[name])
    if len(values) == 1:
        return values * len(places)
    if len(values) != len(places):
        raise QuestionError(f"--{name.replace('_', '-')} lists {len(values)} values for {len(places)} sites: give one, or one for each")
    return values


def _gpus(given: dict[str, Any], places: list[Any]) -> list[float]:
    if len(given["gpus"]) > 1:
        return _shares(given, "gpus", places)
    each = given["gpus"][0] / len(places)
    if each != int(each):
        near = max(int(each), 1) * len(places)
        raise QuestionError(f"--gpus {given['gpus'][0]:g} cannot be shared out evenly to {len(places)} sites: give {near}, or a comma list")
    return [each] * len(places)


def _latency(given: dict[str, Any], places: list[Any], fibre: Any, terms: list[Any], notes: list[Any], warnings: list[str]) -> Any:
    """One way over the longest link of the ring, the table of links, and the order of the ring."""
    from ironlaw.catalog.sourced import ASKED, Sourced
    from ironlaw.estimate.bind.records import assume
    from ironlaw.law import wide_area
    from ironlaw.questions.sites.places import distance, links, ring
    from ironlaw.terms import leaf

    route, index = fibre.route_factor, fibre.index
    if "route_factor" in given:
        route = Sourced(given["route_factor"], "1", str(given["route_factor"]), ASKED)
        if "latency" in given:
            raise QuestionError("--latency says what --route-factor would: leave one of them out")
    if any(place.latitude is None for place in places):
        if "route_factor" in given:
            raise QuestionError("--route-factor needs places: name the sites, or give --latency")
        if "latency" not in given:
            warnings.append("nothing is known of where the sites are: an exchange has no latency; give --latency or name them")
        return given.get("latency", 0.0), [], places
    order = ring(places)
    ways = [(a, b, distance(a, b)) for a, b in links(order)]
    longest = max((way for _, _, way in ways), key=lambda way: float(way.value))
    assume(notes, "route_factor", route.text, "given" if "route_factor" in given else "default")
    one_way = leaf("latency", wide_area.fibre_time, "s", distance=longest.value, route_factor=route, refractive_index=index)
    light = leaf("light", wide_area.light_time, "s", distance=longest.value)
    if given.get("latency", math.inf) < float(light.value):
        raise ValueRangeError(
            f"--latency is {units.show(given['latency'], 's', 3)}: light in vacuum takes {units.show(float(light.value), 's', 3)} over the "
            f"{units.show(float(longest.value), 'm', 4)} of the longest link; give more"
        )
    terms += [longest, light] if "latency" in given else [longest, light, one_way]
    rows = [
        {
            "link": f"{a.name} - {b.name}", "metres": float(way.value), "light": float(wide_area.light_time(way.value)),
            "fibre": float(wide_area.fibre_time(way.value, route.value, index.value)),
        }
        for a, b, way in ways
    ]  # fmt: skip
    return given.get("latency", float(one_way.value)), rows, order


def _answer(given: dict[str, Any], places: list[Any], folders: tuple[str, ...]) -> Answer:
    from ironlaw.catalog import load
    from ironlaw.estimate.run import bind_price
    from ironlaw.law import cost, run, states, wide_area
    from ironlaw.terms import leaf, total

    notes: list[Any] = []
    warnings: list[str] = []
    terms: list[Any] = []
    gpus = _gpus(given, places)
    inside = (constant_mfu if "mfu" in given else estimated)(given, gpus, folders, notes, warnings)
    of_site = dict(zip((place.name for place in places), gpus, strict=True))
    have = {place.name: place.power.value for place in places if place.power}
    if "site_power" in given:
        have = dict(zip(of_site, _shares(given, "site_power", places), strict=True))
    latency, link_rows, places = _latency(given, places, load.record("fibres", "long-haul", folders), terms, notes, warnings)
    gpus = [of_site[place.name] for place in places]
    price = bind_price(given.get("price"), inside.cluster, folders, notes)
    n, all_gpus = float(len(places)), sum(gpus)
    rate, sent = _rate(given, places), given.get("gradients", "bf16")
    tensor = leaf("gradients", states.state, "B", parameters=inside.parameters, bytes_per_parameter=BYTES[sent], shards=given["fragments"])
    way = given.get("exchange", "ring")
    exchange = _exchange(way, n, float(tensor.value), rate, latency)
    compute = one(inside.compute)
    if not compute > 0.0:
        raise UnsupportedError("this plan has no estimate of a step: ironlaw estimate says why; or give --mfu")
    exposed = leaf(
        "exposed", wide_area.exposed_per_step, "s", communication=float(exchange.value), window=given["beside"] * compute,
        inner_steps=given["every"], fragments=given["fragments"],
    )  # fmt: skip
    share = leaf("communication share", wide_area.communication_share, "1", communication=float(exposed.value), compute=compute)
    steps = leaf("steps", run.steps, "1", tokens=given["tokens"], tokens_per_step=inside.batch)
    computing = total("computing", [inside.compute], times=float(steps.value))
    waiting = total("waiting", [exposed], times=float(steps.value))
    seconds = total("seconds", [computing, waiting])
    worth = leaf("effective accelerators", wide_area.effective_accelerators, "1", gpus=all_gpus, communication_share=float(share.value))
    usd = leaf("cost", cost.rental, "USD", gpus=all_gpus, seconds=one(seconds), price=price)
    idle = leaf("cost of waiting", cost.rental, "USD", gpus=all_gpus, seconds=float(waiting.value), price=price)
    kept, site_rows = _draws(given, places, gpus, have, inside.cluster, one(seconds), folders, notes, warnings)
    if given["every"] > 1:
        warnings.append("rarer exchange costs loss, which this does not count: DiLoCo's papers report little at 100 to 500 steps")
    if not inside.fits:
        warnings.append("the model does not fit a site's accelerators: ironlaw estimate says what does not")
    short = [row["site"] for row in site_rows if row["limit"] is not None and row["power"] > row["limit"]]
    spare = 4.0 / BYTES[sent] * given["every"]
    headline = [
        f"{_days(seconds)} = {_days(computing)} of computation and {_days(waiting)} of waiting for the other sites "
        f"({float(share.value):.1%}; compute utilisation {1 - float(share.value):.1%})",
        f"{float(usd.value):,.0f} USD, {float(idle.value):,.0f} of it for waiting: {all_gpus:,.0f} accelerators do the work of "
        f"{float(worth.value):,.0f}",
        f"an exchange of {units.show(float(tensor.value), 'B')} ({sent}) over {len(places)} sites takes "
        f"{units.show(float(exchange.value), 's', 4)} ({way}), a step {units.show(compute, 's', 4)}; "
        f"{_how(given)}; {spare:g} times less traffic than fp32 every step",
        f"{units.show(float(kept[0].value), 'W', 4)} (rated), {units.show(float(kept[1].value), 'J', 4)}, "
        f"{float(kept[2].value) / 1e3:,.1f} t CO2e",
    ]  # fmt: skip
    if short:
        headline.insert(0, f"no: {' and '.join(short)} cannot power {'its' if len(short) == 1 else 'their'} accelerators")
    if not inside.fits:
        headline.insert(0, "no: the model does not fit a site's accelerators")
    terms += [tensor, exchange, exposed, share, steps, seconds, worth, usd, idle, *kept]
    return Answer(
        f"{given['model'] if isinstance(given['model'], str) else 'a model'} on {all_gpus:,.0f} {given['on']} at {len(places)} sites",
        headline,
        (
            Table("links", "Links of the ring", (Column("link", "link"), Column("metres", "over the ground", "m"),
                  Column("light", "light, vacuum", "s"), Column("fibre", "fibre, one way", "s")), link_rows),
            _site_table(site_rows), _ways(given, n, inside, rate, latency, compute, all_gpus, price, float(steps.value)),
        ),
        terms, {"mfu": inside.mfu, "compute_seconds": compute, "traffic_reduction": spare}, notes, warnings, inside.fits and not short,
        folders,
    )  # fmt: skip


def _draws(
    given: dict[str, Any],
    places: list[Any],
    gpus: list[float],
    have: dict[str, float],
    cluster: Any,
    seconds: float,
    folders: tuple[str, ...],
    notes: list[Any],
    warnings: list[str],
) -> tuple[list[Any], list[dict[str, Any]]]:
    """Power, energy and carbon of all sites, each by its own grid, and the row of each."""
    from ironlaw.estimate.run import bind_grid, bind_pue, power_of
    from ironlaw.law import energy
    from ironlaw.terms import leaf, total

    pue = bind_pue(given, cluster, notes)
    drawn, joules, carbon, rows = [], [], [], []
    for place, count in zip(places, gpus, strict=True):
        told = any(note["name"] == "grid" for note in notes) or place.grid is not None
        intensity = bind_grid(place.grid, folders, [] if told else notes)
        power = power_of(cluster, count, pue, f"power of {place.name}")
        used = leaf(f"energy of {place.name}", energy.energy, "J", power=float(power.value), seconds=seconds)
        carbon.append(leaf(f"carbon of {place.name}", energy.carbon, "kg", energy=float(used.value), intensity=intensity))
        drawn.append(power)
        joules.append(used)
        limit = have.get(place.name)
        if limit is not None and float(power.value) > limit:
            warnings.append(
                f"{place.name} has {units.show(limit, 'W')}, {count:,.0f} {given['on']} draw {units.show(float(power.value), 'W')} (rated)"
            )
        rows.append({
            "site": place.name, "gpus": count, "power": float(power.value), "limit": limit, "energy": float(used.value),
            "carbon": float(carbon[-1].value), "intensity": intensity.value * 3.6e9,
        })  # fmt: skip
    return [total(name, parts) for name, parts in (("power", drawn), ("energy", joules), ("carbon", carbon))], rows


def _days(term: Any) -> str:
    return f"{one(term) / 86400.0:,.1f} days"


def _how(given: dict[str, Any]) -> str:
    if given["every"] == 1:
        return "every step" + (f", beside {given['beside']:g} of it" if given["beside"] else ", nothing beside it")
    pieces = f" in {given['fragments']:g} pieces" if given["fragments"] > 1 else ""
    return f"every {given['every']:g} steps{pieces} (DiLoCo)" + (f", beside {given['beside']:g} steps" if given["beside"] else "")


def _rate(given: dict[str, Any], places: list[Any]) -> float:
    """What the slowest site sends at: its own link, or its part of a network they share; a pipe is divided by its law."""
    own = min(_shares(given, "wan_bandwidth", places)) if "wan_bandwidth" in given else float("inf")
    shared = given.get("shared_bandwidth", float("inf"))
    if given.get("exchange") == "pipe":
        if "shared_bandwidth" not in given or "wan_bandwidth" in given:
            raise QuestionError("--exchange pipe is one pipe that all sites share: give --shared-bandwidth, and no --wan-bandwidth")
        if "latency" in given:
            raise QuestionError("--exchange pipe has no latency: leave --latency out, or take --exchange ring")
        return float(shared)
    return float(min(own, shared / len(places)))


def _exchange(way: str, n: float, size: float, rate: float, latency: float) -> Any:
    """One exchange of one piece among all sites."""
    from ironlaw.law import collectives, wide_area
    from ironlaw.terms import leaf

    if way == "pipe":
        return leaf("exchange", wide_area.shared_pipe, "s", n=n, size=size, bandwidth=rate)
    law = collectives.ring_all_reduce if way == "ring" else wide_area.tree_all_reduce
    return leaf("exchange", law, "s", n=n, size=size, bandwidth=rate, latency=latency)


def _site_table(rows: list[dict[str, Any]]) -> Table:
    return Table("by_site", "Sites", (
        Column("site", "site"), Column("gpus", "accelerators", "1"), Column("power", "draws (rated)", "W"), Column("limit", "has", "W"),
        Column("energy", "energy", "J"), Column("intensity", "g CO2e/kWh", "1"), Column("carbon", "kg CO2e", "1"),
    ), rows)  # fmt: skip


def _ways(
    given: dict[str, Any], n: float, inside: Inside, rate: float, latency: float, compute: float, gpus: float, price: Any, steps: float
) -> Table:
    """The same run with other exchanges, for comparison."""
    from ironlaw.law import cost, states, wide_area

    way = given.get("exchange", "ring")
    asked = (way, given.get("gradients", "bf16"), given["every"], given["fragments"], given["beside"])
    others = [(w, g, 1.0, 1.0, 0.0) for w in ((way,) if way == "pipe" else ("ring", "tree")) for g in ("bf16", "int8")]
    others += [
        (way, "bf16", 1.0, 1.0, 1.0),
        (way, "bf16", 100.0, 1.0, 0.0),
        (way, "bf16", 500.0, 1.0, 0.0),
        (way, "int8", 100.0, 10.0, 5.0),
    ]
    rows = []
    for w, gradients, every, fragments, beside in dict.fromkeys([asked, *others]):
        size = float(states.state(inside.parameters, BYTES[gradients], fragments))
        time = float(_exchange(w, n, size, rate, latency).value)
        exposed = float(wide_area.exposed_per_step(time, beside * compute, every, fragments))
        seconds = steps * (compute + exposed)
        rows.append({
            "exchange": w, "gradients": gradients, "every": every, "fragments": fragments, "beside": beside, "exposed": exposed,
            "share": float(wide_area.communication_share(exposed, compute)), "seconds": seconds,
            "usd": float(cost.rental(gpus, seconds, price.value)),
        })  # fmt: skip
    return Table("ways", "Ways to exchange (the first is the one asked)", (
        Column("exchange", "exchange"), Column("gradients", "sent"), Column("every", "every, steps", "1"),
        Column("fragments", "pieces", "1"),
        Column("beside", "beside, steps", "1"), Column("exposed", "waits a step", "s"), Column("share", "waiting", "%"),
        Column("seconds", "run", "s"), Column("usd", "USD", "USD"),
    ), rows)  # fmt: skip
