"""Cost of a run by way to pay: on demand, reserved, spot or bought; and the time until a purchase is cheaper than rent."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ironlaw import units
from ironlaw.catalog import load
from ironlaw.catalog.sourced import Sourced
from ironlaw.cautions.record import Caution
from ironlaw.cautions.table import caution
from ironlaw.estimate.bind.failures import given_or_default
from ironlaw.estimate.bind.money import bind_price
from ironlaw.law import cost, goodput, ownership
from ironlaw.question.assumptions import assume
from ironlaw.questions.answer import Column
from ironlaw.questions.asked_run import AskedRun
from ironlaw.questions.money.energy import Power
from ironlaw.terms import Term, leaf, scalar, total

HOUR, MONTH = 3600.0, 365.25 / 12.0 * 86400.0
PAYMENTS = (
    Column("way", "payment"), Column("usd_per_hour", "USD/h", "USD"), Column("seconds", "time", "s"), Column("usd", "USD", "USD"),
    Column("note", "note"),
)  # fmt: skip
BREAK_EVEN = (
    Column("model", "model"), Column("runs", "runs", "1"), Column("months", "months", "1"), Column("utilisation", "least utilisation", "%"),
    Column("note", "what it counts"),
)  # fmt: skip


@dataclass(frozen=True, eq=False)
class Rent:
    """Cost of a run on rented machines."""

    price: Sourced  # on demand [USD/s]
    seconds: float  # paid time
    on_demand: Term
    payments: list[dict[str, Any]]  # rows of the table
    terms: list[Term]  # all terms but ``on_demand``
    warnings: list[Caution]


@dataclass(frozen=True, eq=False)
class Purchase:
    """Cost of a run on bought machines, against rent."""

    sentence: str
    payments: list[dict[str, Any]]
    break_even: list[dict[str, Any]]
    terms: list[Term]
    warnings: list[Caution]


def price_rent(values: Mapping[str, Any], run: AskedRun, folders: tuple[str, ...], seconds: float) -> Rent:
    """Cost on demand with its part for failures and idle time, cost of reserved and of spot machines."""
    price = bind_price(values.get("price"), run.cluster, folders, [] if run.group else run.assumptions)
    on_demand = _rental("cost on demand", run, seconds, price)
    payments, terms, warnings = [_payment_row("on demand", price, seconds, on_demand, "all time the machines are rented")], [], []
    for name, lost in (("failures and checkpoints", run.wall - run.useful), ("idle", seconds - run.wall)):
        if lost > 0:
            terms.append(_rental(f"cost of {name}", run, lost, price))
            payments.append(_payment_row(f"  of it {name}", price, lost, terms[-1], "paid, without training progress"))
    restart = _rental("cost of a restart", run, values.get("restart_time") or run.cluster.systems.restart_time.value, price)
    terms.append(restart)
    note = "all accelerators, repeated work not counted"
    payments.append(_payment_row("  one restart", price, scalar(restart.inputs["seconds"]), restart, note))
    reserved, spot = _bind_named_price("reserved_price", values, run, folders), _bind_named_price("spot_price", values, run, folders)
    if reserved is not None:
        utilisation = values.get("utilization", 1.0)
        term = leaf(
            "cost reserved", ownership.owned_cost, "USD", gpus=run.gpus, seconds=seconds, standing=reserved, running_rate=0.0,
            utilisation=utilisation,
        )  # fmt: skip
        terms.append(term)
        payments.append(_payment_row("reserved", reserved, seconds, term, f"the whole term is paid, {utilisation:.0%} of it used"))
    if spot is not None:
        row, more, lower = _price_spot(values, run, seconds, spot)
        payments.append(row)
        terms += more
        warnings += lower
    return Rent(price, seconds, on_demand, payments, terms, warnings)


def _bind_named_price(name: str, values: Mapping[str, Any], run: AskedRun, folders: tuple[str, ...]) -> Sourced | None:
    """The price of an option, listed under the option's name; None where it was not given."""
    if name not in values:
        return None
    notes: list[Any] = []
    price = bind_price(values[name], run.cluster, folders, notes)
    run.assumptions.extend({**note, "name": name} for note in notes)
    return price


def _rental(name: str, run: AskedRun, seconds: float, price: Sourced) -> Term:
    return leaf(name, cost.rental, "USD", gpus=run.gpus, seconds=seconds, price=price)


def _price_spot(
    values: Mapping[str, Any], run: AskedRun, seconds: float, price: Sourced
) -> tuple[dict[str, Any], list[Term], list[Caution]]:
    """Cost on spot machines, which interruptions lengthen as failures do: its row, terms and warnings."""
    if "spot_mttf" not in values or run.group is None:
        lack = (
            "no --spot-mttf is given"
            if "spot_mttf" not in values
            else "with --gpu-hours the cost of an interruption is unknown: give MODEL"
        )
        term = _rental("cost on spot", run, seconds, price)
        row = _payment_row("spot", price, seconds, term, "lower bound: no interruptions")
        return row, [term], [caution("spot-without-interruptions", lack=lack)]
    assert run.group.run is not None
    failures = run.group.run.failures
    stops = leaf(
        "time between stops", goodput.either_mttf, "s", mttf=scalar(failures.mttf),
        interruption_mttf=scalar(goodput.cluster_mttf(values["spot_mttf"], run.gpus)),
    )  # fmt: skip
    written = scalar(failures.checkpoint_time)
    wall = leaf(
        "time on spot", goodput.time_with_failures, "s", seconds=scalar(failures.seconds.inputs["seconds"]),
        checkpoint_interval=scalar(goodput.checkpoint_interval_daly(written, scalar(stops))),
        checkpoint_time=written, restart_time=failures.seconds.inputs["restart_time"], mttf=scalar(stops),
    )  # fmt: skip
    paid = scalar(wall) + seconds - run.wall
    term = _rental("cost on spot", run, paid, price)
    warnings = []
    if math.isnan(paid):
        warnings.append(caution("spot-makes-no-progress"))
    row = _payment_row("spot", price, paid, term, f"a stop every {units.show(scalar(stops), 's')}")
    return row, [stops, wall, term], warnings


def _payment_row(way: str, rate: Sourced | float, seconds: float, term: Term, note: str) -> dict[str, Any]:
    return {"way": way, "usd_per_hour": scalar(rate) * HOUR, "seconds": seconds, "usd": scalar(term), "note": note}


def price_purchase(values: Mapping[str, Any], run: AskedRun, power: Power, rent: Rent, folders: tuple[str, ...]) -> Purchase:
    """The purchase price that breaks even with rent; with --purchase-price the cost of the run and the time to pay back."""
    record = load.record("ownership", "default", folders)
    life, power_price, room_price = (
        given_or_default(name, values.get(name), getattr(record, name), run.assumptions)
        for name in ("life", "electricity_price", "hosting_price")
    )
    utilisation = values.get("utilization", 1.0)
    if "utilization" not in values:
        assume(run.assumptions, "utilization", "1", "default")
    warnings = [] if "staff" in values else [caution("staff-not-counted")]
    staff = values.get("staff", 0.0)
    hosting = leaf("hosting", ownership.hosting, "USD/s", power_limit=power.limit, hosting_price=room_price)
    running = leaf("electricity", ownership.electricity, "USD/s", power=power.drawn, pue=power.pue, electricity_price=power_price)
    running_rate, upkeep = scalar(running), scalar(hosting) + staff
    saving = leaf("saving", ownership.saving, "USD/s", price=rent.price, running_rate=running_rate, utilisation=utilisation)
    saved_rate = scalar(saving)
    most = leaf("break-even purchase price", ownership.break_even_purchase, "USD", saved_rate=saved_rate, standing=upkeep, life=life)
    sentence = _break_even_sentence(scalar(most), utilisation, life.value)
    terms = [hosting, running, saving, most]
    price = values.get("purchase_price")
    if price is None:
        return Purchase(sentence, [], [], terms, warnings)

    depreciation = leaf(
        "depreciation", ownership.depreciation, "USD/s", purchase=price, residual=price * values.get("residual", 0.0), life=life
    )
    standing = total("standing cost", [depreciation, hosting, *([leaf("staff", _as_given, "USD/s", standing=staff)] if staff else [])])
    whole_run = leaf(
        "cost if bought", ownership.owned_cost, "USD", gpus=run.gpus, seconds=rent.seconds, standing=scalar(standing),
        running_rate=running_rate, utilisation=utilisation,
    )  # fmt: skip
    note = f"depreciation, hosting, staff, electricity; used {utilisation:.0%} of its life"
    payment = _payment_row("bought", scalar(standing) / utilisation + running_rate, rent.seconds, whole_run, note)
    rows, counted = _time_to_break_even(price, run, rent, running_rate)
    payback = leaf("payback time", ownership.payback_time, "s", purchase=price, saved_rate=saved_rate, standing=upkeep)
    least = leaf(
        "break-even utilisation", ownership.break_even_utilisation, "1", standing=scalar(standing), price=rent.price,
        running_rate=running_rate,
    )  # fmt: skip
    if not scalar(least) <= 1:
        warnings.append(caution("rent-is-cheaper"))
    payback_seconds = scalar(payback)
    in_full = {
        "model": "in full", "runs": payback_seconds * utilisation / rent.seconds, "months": payback_seconds / MONTH,
        "utilisation": scalar(least),
        "note": f"electricity, hosting, staff; used {utilisation:.0%} of the time",
    }  # fmt: skip
    return Purchase(sentence, [payment], [*rows, in_full], [*terms, standing, whole_run, *counted, payback, least], warnings)


def _time_to_break_even(bought: float, run: AskedRun, rent: Rent, running_rate: float) -> tuple[list[dict[str, Any]], list[Term]]:
    """Runs and months until rent of back-to-back runs equals the purchase price, without and with electricity."""
    rows, terms = [], []
    price, rent_of_run = bought * run.gpus, scalar(rent.on_demand)
    for name, electricity, note in (
        ("simplified", 0.0, "purchase price over rent of back-to-back runs: a lower bound"),
        ("with electricity", running_rate * run.gpus * rent.seconds, "the same, less electricity"),
    ):
        count = leaf(f"break-even runs {name}", ownership.break_even_runs, "1", purchase=price, rent=rent_of_run, running=electricity)
        terms.append(count)
        runs = scalar(count)
        rows.append({"model": name, "runs": runs, "months": runs * rent.seconds / MONTH, "utilisation": None, "note": note})
    return rows, terms


def _break_even_sentence(most: float, used: float, life: float) -> str:
    """The purchase price at which buying costs as much as renting."""
    if math.isnan(most):
        return "buying always costs more: hosting, staff and electricity alone cost more than the rent saved"
    years = life / (12 * MONTH)
    return f"break-even purchase price {most:,.0f} USD per accelerator, server and network included ({years:.3g} years, {used:.0%} used)"


def _as_given(standing: Any) -> Any:
    """A rate given in the question: ``standing``."""
    return 1.0 * standing
