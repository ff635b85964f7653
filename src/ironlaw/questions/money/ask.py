"""What a run costs to rent, to reserve, on spot machines, or on machines of one's own; its energy and carbon."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from ironlaw import units
from ironlaw.errors import QuestionError
from ironlaw.question.options import OPTIONS as ESTIMATE
from ironlaw.question.options import Option, duration, positive, price
from ironlaw.questions.answer import Answer, Table, read
from ironlaw.questions.asked_run import amount, one, share, with_unit, work_of

OWN: dict[str, Option] = {
    "gpu_hours": Option(amount, "accelerator hours of the run, failures in them, instead of MODEL and --tokens", "HOURS"),
    "tokens": replace(ESTIMATE["tokens"], help="tokens of the whole run, such as 15T"),
    "idle": Option(duration, "time the accelerators are held and nothing runs, such as 12h", "TIME"),
    "reserved_price": Option(price, "USD per accelerator hour for a term, used or not, or provider/term", "PRICE"),
    "spot_price": Option(price, "USD per accelerator hour of machines that may be taken back, or provider/term", "PRICE"),
    "spot_mttf": Option(duration, "time of one spot accelerator between interruptions that stop the job, such as 20000h", "TIME"),
    "utilisation": Option(share, "share of the time that reserved or owned accelerators work (default 1)", "SHARE"),
    "purchase_price": Option(positive("USD"), "USD for one accelerator with its share of server and network", "USD"),
    "residual": Option(share, "share of the purchase price one sells for at the end of --life (default: nothing)", "SHARE"),
    "life": Option(duration, "time over which a purchase is written off, such as 5years", "TIME"),
    "electricity_price": Option(with_unit("USD/J", "0.08USD/kWh"), "price of energy, such as 0.08USD/kWh", "PRICE"),
    "hosting_price": Option(with_unit("USD/J", "180USD/kW/month"), "rent of the room, such as 180USD/kW/month", "PRICE"),
    "staff": Option(with_unit("USD/s", "500USD/year"), "staff and repairs for one accelerator, such as 500USD/year", "PRICE"),
    "power": Option(positive("W"), "your measured power of a node, for each accelerator, such as 850W", "POWER"),
    "network_power": Option(positive("W"), "power of switches, for each accelerator (default: left out)", "POWER"),
    "load": Option(share, "share of the time accelerators compute (default: of the estimate)", "SHARE"),
}
OPTIONS: dict[str, Option] = {**ESTIMATE, **OWN}


def money(model: Any = None, on: str | None = None, *, catalog: tuple[str, ...] = (), **options: Any) -> Answer:
    """What a run costs in every way to pay: ``money("llama-3-70b", on="h100-sxm", gpus=512, tokens="1T")``."""
    from ironlaw.catalog import load

    return ask({"model": model, "on": on, **options}, load.given_folders(catalog))


def ask(options: Mapping[str, Any], folders: tuple[str, ...] = ()) -> Answer:
    """The Answer of a question about money; QuestionError where it contradicts itself."""
    from ironlaw.law import cost
    from ironlaw.questions.money.energy import ENERGY, Watts
    from ironlaw.questions.money.rent_or_own import BREAK_EVEN, HOUR, WAYS, Owning, Paid
    from ironlaw.terms import leaf

    values = read(options, OPTIONS, "money")
    _refuse(values)
    work = work_of(values, folders)
    held = work.wall + values.get("idle", 0.0)
    watts = Watts(values, work, folders)
    paid = Paid(values, work, folders, held)
    hours = leaf("gpu hours", cost.gpu_hours, "h", gpus=work.gpus, seconds=held)
    own = Owning(values, work, watts, paid, folders)
    energy_rows, energy_terms = watts.table(held)
    first = energy_rows[0]
    lines = [
        f"{units.show(held, 's', 4)} on {work.gpus:,.0f} accelerators, {one(hours.value):,.0f} GPU-hours",
        f"{_usd(paid.rent.value)} on demand at {one(paid.price.value) * HOUR:.4g} USD/h",
        own.line(),
        f"{units.show(first['energy'], 'J', 4)}, {first['carbon'] / 1e3:,.4g} t CO2e ({first['basis']} power)",
    ]
    ways = Table("ways", "Ways to pay for it", WAYS, [*paid.rows(), *own.rows()])
    tables = [ways, Table("rent_or_buy", "Rent or buy: when a purchase has paid for itself", BREAK_EVEN, own.break_even())]
    tables += [Table("energy_and_carbon", "Energy and carbon", ENERGY, energy_rows), *watts.measured()]
    duration_terms = [work.group.run.failures.seconds] if work.group and work.group.run else []
    terms = [*duration_terms, hours, paid.rent, *paid.terms, *own.terms, *energy_terms]
    warnings = [*work.warnings, *paid.warnings, *own.warnings, *watts.warnings]
    fits = work.group is None or bool(work.group.memory.fits[0])
    if not fits:
        lines.insert(0, "no: the plan does not fit in memory, so this run cannot be; what it would take:")
    values_of = {"gpus": work.gpus, "seconds": held}
    return Answer(work.title, lines, tables, terms, values_of, work.assumptions, warnings, fits, folders)


def _refuse(values: Mapping[str, Any]) -> None:
    """Options that contradict each other or have no effect."""
    for name, other in (("spot_mttf", "spot_price"), ("residual", "purchase_price")):
        if name in values and other not in values:
            raise QuestionError(f"--{name.replace('_', '-')} has no effect without --{other.replace('_', '-')}: give both")
    if "power" in values and "load" in values:
        raise QuestionError("--power is measured under its own load: give --power or --load, not both")


def _usd(value: Any) -> str:
    number = one(value)
    return f"{number:,.0f} USD" if number >= 100 else f"{number:.4g} USD"
