"""Answer ``ironlaw sites``: distance, exchange, waiting, cost, power and carbon of a run at several data centres, and which to take.

Inside a site the step is that of ``ironlaw.estimate``, or at a constant MFU (simplified). Sites exchange gradients every step, or their
changed weights every so many steps (DiLoCo), in pieces that overlap computation (streaming DiLoCo).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ironlaw import units
from ironlaw.catalog.sourced import Sourced
from ironlaw.cautions.record import Caution, Sentence
from ironlaw.cautions.table import caution
from ironlaw.estimate.bind.failures import given_or_default
from ironlaw.law import cost, wide_area
from ironlaw.question import defaults
from ironlaw.question.assumptions import Assumptions, assume
from ironlaw.questions.answer import Answer, Table
from ironlaw.questions.sites.accounts import Accounts, count_accounts, tabulate_costs, tabulate_power
from ironlaw.questions.sites.bind import Site, bind_accelerators, bind_sites, split_gpus, warn_of_unknown
from ironlaw.questions.sites.choose import Question, compare_choices
from ironlaw.questions.sites.exchange import (
    LINKS,
    Exchange,
    bind_exchange,
    bind_wan,
    compare_exchanges,
    tabulate_intervals,
    tabulate_latency,
)
from ironlaw.questions.sites.hours import bind_profiles, tabulate_hours
from ironlaw.questions.sites.options import GRADIENT_BYTES, PLACES
from ironlaw.questions.sites.outer_state import OuterState, count_outer_state
from ironlaw.questions.sites.places import Place, bind_places, tabulate_places
from ironlaw.questions.sites.run_time import RunTime, tabulate_waiting, time_run
from ironlaw.questions.sites.site_step import SiteSteps, bind_steps, default_split
from ironlaw.terms import Term, leaf, scalar, total

BETTER = 0.02  # a split of the batch that is faster by more is pointed out


def ask(values: dict[str, Any], folders: tuple[str, ...] = ()) -> Answer:
    """Answer a question about training at several sites; not feasible where a site lacks memory or power, or none meets the deadline."""
    return _write_answer(values, bind_places(values["sites"], folders), folders)


def _write_answer(values: dict[str, Any], places: list[Place], folders: tuple[str, ...]) -> Answer:
    """Bind the run, compute its time, cost, power and carbon, and write the answer."""
    notes: Assumptions = []
    exchange, names = bind_exchange(values), [place.name for place in places]
    gpus, ons = split_gpus(values, places), bind_accelerators(values, places, folders)
    if "batch_split" not in values:
        values["batch_split"] = default_split(ons)
        if len(set(ons)) > 1:
            assume(notes, "batch_split", values["batch_split"], "default")
    steps, outer = _bind_steps(values, exchange, ons, gpus, names, folders, notes)
    wan = bind_wan(values, places, folders, notes)
    network = wan.join(places)
    sites = bind_sites(values, places, steps, folders, notes)
    rounding = values.get("rounding", defaults.ROUNDING)
    assume(notes, "rounding of steps", rounding, "given" if "rounding" in values else "default")
    time = time_run(values["tokens"], steps.batch, exchange, network, steps.parameters, steps.slowest.compute, rounding)
    accounts = count_accounts(sites, scalar(time.seconds), scalar(time.sent), time.exchanges)
    question = Question(values["tokens"], steps.batch, steps.parameters, exchange, wan, values.get("deadline"), rounding)
    choices = compare_choices(question, sites)
    hours = _bind_hours(values, sites, steps, time, folders, notes)
    rents = [(site.step.gpus, site.price.value) for site in sites]
    compute, all_gpus = steps.slowest.seconds, sum(gpus)
    worth = leaf("effective accelerators", wide_area.effective_accelerators, "1", gpus=all_gpus, communication_share=scalar(time.share))
    idle = total("cost of waiting", [
        leaf(f"rent while {site.name} waits", cost.rental, "USD", gpus=site.step.gpus, seconds=scalar(time.waiting), price=site.price)
        for site in sites
    ])  # fmt: skip
    saved_traffic = 4.0 / GRADIENT_BYTES[exchange.gradients] * exchange.every
    tables = [
        *choices.tabulate(), tabulate_waiting(steps, names, scalar(time.exposed)), tabulate_power(accounts), tabulate_costs(accounts),
        *([outer.tabulate()] if outer else []), *([hours] if hours else []), *([steps.splits] if steps.splits else []),
        Table("links", "Links of the ring", LINKS, network.links),
        compare_exchanges(exchange, network, steps.parameters, compute, scalar(time.steps), rents),
        tabulate_intervals(exchange, network, steps.parameters, compute, scalar(time.steps), rents), *tabulate_places(places),
    ]  # fmt: skip
    if latency := tabulate_latency(wan, places, scalar(time.steps) / exchange.every, rents):
        tables.append(latency)
    short = [account.site.name for account in accounts.short]
    misses = values.get("deadline") is not None and not choices.best
    return Answer(
        title=f"{_name_model(values)} on {all_gpus:,.0f} {', '.join(dict.fromkeys(ons))} at {len(places)} sites",
        headline=[
            *_say_no(short, steps, outer), *_write_headline(time, accounts, scalar(worth), scalar(idle), all_gpus),
            _describe_exchange(time, exchange, len(places), compute, saved_traffic), *choices.describe(), *_describe_hours(hours, values),
        ],
        tables=tables,
        terms=[
            *network.terms, time.tensor, time.exchange, time.exposed, time.share, time.steps, time.waiting, time.seconds, time.sent, worth,
            accounts.usd, *accounts.electricity_in_price, idle, accounts.power, accounts.energy, accounts.carbon,
            *(outer.terms if outer else []),
        ],
        values={"mfu": steps.slowest.mfu, "compute_seconds": compute, "traffic_reduction": saved_traffic},
        assumptions=notes,
        warnings=_list_warnings(values, exchange, sites, steps, accounts, outer, wan.located, folders),
        feasible=steps.fits and not short and (outer is None or outer.fits) and not misses,
        folders=folders,
    )  # fmt: skip


def _name_model(values: dict[str, Any]) -> str:
    """The model as the title names it."""
    if "parameters" in values:
        return units.show(values["parameters"], "parameter")
    return values["model"] if isinstance(values["model"], str) else "a model"


def _say_no(short: Sequence[str], steps: SiteSteps, outer: OuterState | None) -> list[str]:
    """Why the answer is no."""
    lines: list[str] = []
    if not steps.fits:
        lines.append(Sentence("no: the model does not fit a site's accelerators", "does-not-fit"))
    elif outer is not None and not outer.fits:
        lines.append(Sentence(f"no: {outer.describe()[0]}", "outer-state-does-not-fit"))
    if short:
        text = f"no: {' and '.join(short)} cannot power {'its' if len(short) == 1 else 'their'} accelerators"
        lines.append(Sentence(text, "too-little-power", {"sites": list(short)}))
    return lines


def _write_headline(time: RunTime, accounts: Accounts, worth: float, idle: float, gpus: float) -> list[str]:
    """Time, money and power of the run on all sites."""
    share, usd = scalar(time.share), accounts.usd
    waiting = f"{gpus:,.0f} accelerators do the work of {worth:,.0f}" if round(gpus) != round(worth) else "no time lost to waiting"
    bills: dict[str, list[Term | None]] = {
        "rent": [a.rent for a in accounts.sites],
        "electricity": [a.electricity for a in accounts.sites if a.site.electricity_paid],
        "traffic": [a.traffic for a in accounts.sites],
    }
    parts = {name: sum(scalar(term) for term in terms if term is not None) for name, terms in bills.items()}
    shown = ", ".join(f"{units.amount(value)} for {name}" for name, value in parts.items() if value)
    first = f"{_days(time.seconds)}, none of it waiting for an exchange with the other sites"
    if scalar(time.waiting) > 0.0:
        first = (
            f"{_days(time.seconds)} = {_days(time.computing)} of computation and {_days(time.waiting)} of waiting for the other sites "
            f"({share:.1%}; compute utilisation {1 - share:.1%})"
        )
    return [
        Sentence(first, "run", {"seconds": scalar(time.seconds), "waiting_seconds": scalar(time.waiting), "waiting_share": share}),
        f"{units.amount(scalar(usd))} USD" + (f" ({shown})" if shown.count(" for ") > 1 else "")
        + f", {units.amount(idle)} of the rent for waiting: {waiting}",
        f"{units.show(scalar(accounts.power), 'W', 4)} (rated), {units.show(scalar(accounts.energy), 'J', 4)}, "
        f"{units.show(scalar(accounts.carbon), 'kg', 4)} CO2e",
    ]  # fmt: skip


def _describe_exchange(time: RunTime, exchange: Exchange, sites: int, compute: float, saved_traffic: float) -> str:
    """The exchange in a sentence."""
    return (
        f"an exchange of {units.show(scalar(time.tensor), 'B')} ({exchange.gradients}) over {sites} sites takes "
        f"{units.show(scalar(time.exchange), 's', 4)} ({exchange.way}), a step {units.show(compute, 's', 4)}; "
        f"{exchange.describe()}; {saved_traffic:g} times less traffic than fp32 every step"
    )


def _bind_steps(
    values: dict[str, Any], exchange: Exchange, ons: list[str], gpus: list[float], names: list[str], folders: tuple[str, ...],
    notes: Assumptions,
) -> tuple[SiteSteps, OuterState | None]:  # fmt: skip
    """The step of every site, and the outer state of DiLoCo; None with an exchange every step, and in the simplified model.

    Where the outer state does not fit beside the best plan on the accelerators, the best plan that leaves room for it is taken.
    """
    assumed: Assumptions = []
    steps = bind_steps(values, ons, gpus, names, folders, assumed)
    where, margin = values.get("outer_state", PLACES[0]), values.get("margin", 0.0)
    outer = count_outer_state(list(zip(names, steps.sites, strict=True)), where, margin) if exchange.every > 1 else None
    if outer is not None and not outer.fits and steps.fits and where == "device" and "margin" not in values and outer.margin < 1.0:
        roomy: Assumptions = []
        others = bind_steps({**values, "margin": outer.margin}, ons, gpus, names, folders, roomy)
        found = count_outer_state(list(zip(names, others.sites, strict=True)), where, margin)
        if found is not None and found.fits:
            steps, outer, assumed = others, found, roomy
    notes += assumed
    if outer is not None and "outer_state" not in values:
        assume(notes, "outer_state", f"{where} memory", "default")
    return steps, outer


def _bind_hours(
    values: dict[str, Any], sites: list[Site], steps: SiteSteps, time: RunTime, folders: tuple[str, ...], notes: Assumptions
) -> Table | None:
    """The table of hours of the day, where the question asks for hours or gives a profile."""
    if "hours" not in values and "carbon_profile" not in values:
        return None
    default: Sourced = steps.slowest.cluster.systems.restart_time
    restart = given_or_default("restart_time", values.get("restart_time"), default, notes, " after each pause")
    return tabulate_hours(sites, bind_profiles(values, sites, folders), time, restart.value, values.get("hours"))


def _describe_hours(hours: Table | None, values: dict[str, Any]) -> list[str]:
    """The hours of the question in a sentence."""
    if hours is None or "hours" not in values:
        return []
    always, asked = hours.rows[0], hours.rows[min(1, len(hours.rows) - 1)]
    return [
        f"in the hours {asked['hours']} UTC only: {units.run_time(asked['seconds'])} instead of {units.run_time(always['seconds'])}, "
        f"{units.show(asked['carbon'], 'kg', 4)} CO2e instead of {units.show(always['carbon'], 'kg', 4)}, {units.amount(asked['usd'])} USD"
        f" if the machines are released in the pauses, {units.amount(asked['held'])} if they are held"
    ]


def _list_warnings(
    values: dict[str, Any], exchange: Exchange, sites: list[Site], steps: SiteSteps, accounts: Accounts, outer: OuterState | None,
    located: bool, folders: tuple[str, ...],
) -> list[Caution]:  # fmt: skip
    """Warnings of the steps and of the network, of sites without enough power or memory, of unknown grids, and of rare exchanges."""
    warnings = list(steps.warnings)
    if not located and "latency" not in values and exchange.way != "pipe":
        warnings.append(caution("latency-not-counted"))
    warnings += [
        caution(
            "power-limit",
            site=a.site.name,
            limit=a.site.limit or 0.0,
            gpus=a.site.step.gpus,
            accelerator=a.site.step.on,
            power=scalar(a.power),
        )
        for a in accounts.short
    ]
    warnings += warn_of_unknown(sites, folders)
    if steps.splits and values["batch_split"] != "balanced":
        chosen, best = (row["tokens_per_second"] for row in (_split_row(steps, values), max(steps.splits.rows, key=_rate)))
        if best > chosen * (1.0 + BETTER):
            warnings.append(caution("sites-wait", slowest=_name_of(steps, sites), gain=best / chosen - 1.0))
    if exchange.every > 1:
        warnings.append(caution("loss-of-rare-exchanges"))
        if outer is None:
            warnings.append(caution("outer-state-not-placed"))
    if not steps.fits:
        warnings.append(caution("does-not-fit-a-site"))
    if "hours" in values and not bind_profiles(values, sites, folders):
        warnings.append(caution("no-hourly-carbon"))
    if any(account.electricity is None for account in accounts.sites):
        unknown = [a.site.name for a in accounts.sites if a.electricity is None and a.site.place.latitude is not None]
        if unknown and len(unknown) < len(accounts.sites):
            warnings.append(caution("no-electricity-price", sites=unknown, first=unknown[0]))
    return warnings


def _rate(row: Mapping[str, Any]) -> float:
    return float(row["tokens_per_second"])


def _split_row(steps: SiteSteps, values: dict[str, Any]) -> Mapping[str, Any]:
    """The row of the chosen split of the batch."""
    assert steps.splits is not None
    return next(row for row in steps.splits.rows if row["split"] == values["batch_split"])


def _name_of(steps: SiteSteps, sites: list[Site]) -> str:
    """The name of the slowest site."""
    return sites[steps.sites.index(steps.slowest)].name


def _days(seconds: Term) -> str:
    return units.run_time(scalar(seconds))
