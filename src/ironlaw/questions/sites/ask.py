"""Answer ``ironlaw sites``: distance, exchange, waiting, cost, power and carbon of a run at several data centres.

Inside a site the step is that of ``ironlaw.estimate``, or at a constant MFU (simplified). Sites exchange gradients every step, or their
changed weights every so many steps (DiLoCo), in pieces that overlap computation (streaming DiLoCo).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ironlaw import units
from ironlaw.errors import QuestionError, UnsupportedError
from ironlaw.estimate.bind.money import bind_price
from ironlaw.law import cost, run, states, wide_area
from ironlaw.question import defaults
from ironlaw.question.assumptions import Assumptions, assume
from ironlaw.questions.answer import Answer, Table, need, read
from ironlaw.questions.sites.exchange import LINKS, Exchange, Network, bind_exchange, bind_network, compare_exchanges, each_site
from ironlaw.questions.sites.options import GRADIENT_BYTES, OPTIONS
from ironlaw.questions.sites.places import Place, bind_places
from ironlaw.questions.sites.power import SITES, SitePower, count_site_power
from ironlaw.questions.sites.site_step import SiteStep, estimate_site_step, step_at_constant_mfu
from ironlaw.terms import Term, leaf, scalar, total


def ask(options: Mapping[str, Any], folders: tuple[str, ...] = ()) -> Answer:
    """Answer a question about training at several sites; not feasible where a site lacks memory or power."""
    values = read(options, OPTIONS, "sites")
    if "model_of" in values:
        if others := sorted(set(values) - {"model_of"}):
            raise QuestionError(f"--model-of ten-sites takes no other option: leave out --{others[0].replace('_', '-')}")
        from ironlaw.questions.textbook.ten_sites import study

        return study(folders)
    need(values, "model", "sites", "on", "gpus", "tokens")
    if "wan_bandwidth" not in values and "shared_bandwidth" not in values:
        raise QuestionError("missing option --wan-bandwidth RATE (of each site) or --shared-bandwidth RATE (of all sites together)")
    places = bind_places(values["sites"], values.get("grid"), folders)
    if "grid" in values and not isinstance(values["sites"], int) and all(isinstance(item, str) for item in values["sites"]):
        raise QuestionError("--grid has no effect: every named site has its own grid; it is for sites given by LAT,LON or by number")
    return _write_answer(values, places, folders)


@dataclass(frozen=True, eq=False)
class RunTime:
    """Computation and waiting of a run, a Term each."""

    tensor: Term  # bytes of one exchange
    exchange: Term  # time of one exchange
    exposed: Term  # waiting per step
    share: Term  # of the run that is waiting
    steps: Term
    computing: Term
    waiting: Term
    seconds: Term


def _count_time(tokens: float, exchange: Exchange, network: Network, step: SiteStep, rounding: str) -> RunTime:
    """Time of a run whose sites compute steps and exchange gradients; ``rounding`` of its steps."""
    tensor = leaf(
        "gradients", states.state, "B", parameters=step.parameters, bytes_per_parameter=GRADIENT_BYTES[exchange.gradients],
        shards=exchange.fragments,
    )  # fmt: skip
    time = network.exchange_time(exchange.way, scalar(tensor))
    compute = scalar(step.compute)
    if not compute > 0.0:
        raise UnsupportedError("this plan has no estimate of a step: ironlaw estimate says why; or give --mfu")
    exposed = leaf(
        "exposed", wide_area.exposed_per_step, "s", communication=scalar(time), window=exchange.beside * compute,
        inner_steps=exchange.every, fragments=exchange.fragments,
    )  # fmt: skip
    share = leaf("communication share", wide_area.communication_share, "1", communication=scalar(exposed), compute=compute)
    steps = leaf("steps", run.steps, "1", tokens=tokens, tokens_per_step=step.batch, rounding=run.ROUNDINGS[rounding])
    computing = total("computing", [step.compute], times=scalar(steps))
    waiting = total("waiting", [exposed], times=scalar(steps))
    return RunTime(tensor, time, exposed, share, steps, computing, waiting, total("seconds", [computing, waiting]))


def _write_answer(values: dict[str, Any], places: list[Place], folders: tuple[str, ...]) -> Answer:
    """Bind the run, compute its time, cost, power and carbon, and write the answer."""
    notes: Assumptions = []
    exchange = bind_exchange(values)
    gpus = dict(zip(places, _split_gpus(values, places), strict=True))
    step = (step_at_constant_mfu if "mfu" in values else estimate_site_step)(values, list(gpus.values()), folders, notes)
    limits = {place.name: place.power.value for place in places if place.power}
    if "site_power" in values:
        limits = dict(zip((place.name for place in places), each_site(values, "site_power", places), strict=True))
    network = bind_network(values, places, folders, notes)
    price = bind_price(values.get("price"), step.cluster, folders, notes)
    rounding = values.get("rounding", defaults.ROUNDING)
    assume(notes, "rounding of steps", rounding, "given" if "rounding" in values else "default")
    time = _count_time(values["tokens"], exchange, network, step, rounding)
    gpus = {place: gpus[place] for place in network.order}
    all_gpus, seconds, compute = sum(gpus.values()), scalar(time.seconds), scalar(step.compute)
    share = scalar(time.share)
    worth = leaf("effective accelerators", wide_area.effective_accelerators, "1", gpus=all_gpus, communication_share=share)
    usd = leaf("cost", cost.rental, "USD", gpus=all_gpus, seconds=seconds, price=price)
    idle = leaf("cost of waiting", cost.rental, "USD", gpus=all_gpus, seconds=scalar(time.waiting), price=price)
    power = count_site_power(values, gpus, limits, step.cluster, seconds, folders, notes)
    saved_traffic = 4.0 / GRADIENT_BYTES[exchange.gradients] * exchange.every
    headline = [
        f"{_days(time.seconds)} = {_days(time.computing)} of computation and {_days(time.waiting)} of waiting for the other sites "
        f"({share:.1%}; compute utilisation {1 - share:.1%})",
        f"{units.amount(scalar(usd))} USD, {units.amount(scalar(idle))} of it for waiting: "
        + (f"{all_gpus:,.0f} accelerators work like {scalar(worth):,.0f}" if share else "no time lost to waiting"),
        f"an exchange of {units.show(scalar(time.tensor), 'B')} ({exchange.gradients}) over {len(places)} sites takes "
        f"{units.show(scalar(time.exchange), 's', 4)} ({exchange.way}), a step {units.show(compute, 's', 4)}; "
        f"{exchange.describe()}; {saved_traffic:g} times less traffic than fp32 every step",
        f"{units.show(scalar(power.power), 'W', 4)} (rated), {units.show(scalar(power.energy), 'J', 4)}, "
        f"{units.show(scalar(power.carbon), 'kg', 4)} CO2e",
    ]  # fmt: skip
    name = values["model"] if isinstance(values["model"], str) else "a model"
    short = [row["site"] for row in power.short]
    if short:
        headline.insert(0, f"no: {' and '.join(short)} cannot power {'its' if len(short) == 1 else 'their'} accelerators")
    if not step.fits:
        headline.insert(0, "no: the model does not fit a site's accelerators")
    return Answer(
        title=f"{name} on {all_gpus:,.0f} {values['on']} at {len(places)} sites",
        headline=headline,
        tables=(
            Table("links", "Links of the ring", LINKS, network.links),
            Table("by_site", "Sites", SITES, power.rows),
            compare_exchanges(exchange, network, step.parameters, compute, scalar(time.steps), all_gpus, price),
        ),
        terms=[
            *network.terms, time.tensor, time.exchange, time.exposed, time.share, time.steps, time.seconds, worth, usd, idle,
            power.power, power.energy, power.carbon,
        ],
        values={"mfu": step.mfu, "compute_seconds": compute, "traffic_reduction": saved_traffic},
        assumptions=notes,
        warnings=_list_warnings(values, exchange, network, step, power),
        feasible=step.fits and not short,
        folders=folders,
    )  # fmt: skip


def _list_warnings(values: dict[str, Any], exchange: Exchange, network: Network, step: SiteStep, power: SitePower) -> list[str]:
    """Warnings of the step and of the network, of sites without enough power or memory, and of rare exchanges."""
    warnings = [*step.warnings, *network.warnings]
    warnings += [
        f"{row['site']} has {units.show(row['limit'], 'W')}, {row['gpus']:,.0f} {values['on']} draw {units.show(row['power'], 'W')} (rated)"
        for row in power.short
    ]
    if exchange.every > 1:
        warnings.append("exchanging less often raises the loss, which is not counted: DiLoCo's papers report little at 100 to 500 steps")
    if not step.fits:
        warnings.append("the model does not fit a site's accelerators: ironlaw estimate says by how much")
    return warnings


def _split_gpus(values: dict[str, Any], places: list[Place]) -> list[float]:
    """Accelerators of each site."""
    if len(values["gpus"]) > 1:
        return each_site(values, "gpus", places)
    count = values["gpus"][0]
    per_site = count / len(places)
    if per_site != int(per_site):
        near = max(int(per_site), 1) * len(places)
        raise QuestionError(f"--gpus {count:g} cannot be split evenly over {len(places)} sites: give {near}, or a comma list")
    return [per_site] * len(places)


def _days(seconds: Term) -> str:
    return units.run_time(scalar(seconds))
