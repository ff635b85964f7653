"""Answer ``ironlaw money``: the cost of a run on demand, reserved, on spot machines or on bought ones; its energy and carbon."""

from __future__ import annotations

from typing import Any

from ironlaw import units
from ironlaw.cautions.record import Sentence
from ironlaw.law import cost
from ironlaw.questions.answer import Answer, Table
from ironlaw.questions.asked_run import run_of
from ironlaw.questions.money.energy import ENERGY, MEASURED_POWER, bind_power, count_energy, list_measured_runs
from ironlaw.questions.money.rent_or_own import BREAK_EVEN, PAYMENTS, price_purchase, price_rent
from ironlaw.terms import leaf, scalar


def ask(values: dict[str, Any], folders: tuple[str, ...] = ()) -> Answer:
    """Answer a question about money; QuestionError where its options contradict each other."""
    run = run_of(values, folders)
    seconds = run.wall + values.get("idle", 0.0)
    power = bind_power(values, run, folders)
    rent = price_rent(values, run, folders, seconds)
    hours = leaf("gpu hours", cost.gpu_hours, "h", gpus=run.gpus, seconds=seconds)
    bought = price_purchase(values, run, power, rent, folders)
    energy_rows, energy_terms = count_energy(run, power, seconds)
    first = energy_rows[0]
    lines = [
        Sentence(
            f"{units.show(seconds, 's', 4)} on {run.gpus:,.0f} accelerators, {units.amount(scalar(hours))} GPU-hours",
            "run", {"seconds": seconds, "gpus": run.gpus, "gpu_hours": scalar(hours)},
        ),
        Sentence(
            f"{_show_usd(scalar(rent.on_demand))} on demand at {scalar(rent.price) * 3600.0:.4g} USD/h",
            "rent", {"usd": scalar(rent.on_demand), "usd_per_second": scalar(rent.price)},
        ),
        Sentence(bought.sentence, "purchase"),
        Sentence(
            f"{units.show(first['energy'], 'J', 4)}, {units.show(first['carbon'], 'kg', 4)} CO2e ({first['basis']} power)",
            "energy", {"joules": first["energy"], "kg_co2e": first["carbon"], "basis": first["basis"]},
        ),
    ]  # fmt: skip
    tables = [
        Table("ways", "Cost of the run by way to pay", PAYMENTS, [*rent.payments, *bought.payments]),
        Table("rent_or_buy", "Rent or buy: time until a purchase costs less than rent", BREAK_EVEN, bought.break_even),
        Table("energy_and_carbon", "Energy and carbon", ENERGY, energy_rows),
    ]
    if power.record is not None:
        runs = list_measured_runs(power.record)
        tables.append(Table("measured_power", "Measured node power per accelerator, before PUE", MEASURED_POWER, runs))
    time = [run.group.run.failures.seconds] if run.group and run.group.run else []
    fits = run.group is None or bool(run.group.memory.fits[0])
    if not fits:
        lines.insert(0, Sentence("no: the plan does not fit in memory; if it did, the run would take:", "does-not-fit"))
    return Answer(
        title=run.title,
        headline=lines,
        tables=tables,
        terms=[*time, hours, rent.on_demand, *rent.terms, *bought.terms, *energy_terms],
        values={"gpus": run.gpus, "seconds": seconds},
        assumptions=run.assumptions,
        warnings=[*run.warnings, *rent.warnings, *bought.warnings, *power.warnings],
        feasible=fits,
        folders=folders,
    )


def _show_usd(usd: float) -> str:
    return f"{usd:,.0f} USD" if usd >= 100 else f"{usd:.4g} USD"
