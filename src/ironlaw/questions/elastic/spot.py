"""Spot machines against on-demand machines: cost of a useful token, days, and the interruptions at which both cost the same."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from ironlaw import units
from ironlaw.cautions.table import caution
from ironlaw.estimate.bind.money import bind_price
from ironlaw.law import cost
from ironlaw.law import goodput as law
from ironlaw.questions.answer import Column, Table, filled_columns
from ironlaw.questions.elastic.base import Base
from ironlaw.questions.elastic.part import Part
from ironlaw.terms import Term, leaf, scalar

WAYS = (
    Column("way", "machines"), Column("usd_per_hour", "USD/h each", "USD"), Column("stop_seconds", "a stop every", "s"),
    Column("interval", "checkpoint every", "s"), Column("goodput", "goodput", "%"), Column("tokens_per_second", "useful tokens/s", "1"),
    Column("usd_per_million_tokens", "USD per M tokens", "USD"), Column("seconds", "run", "s"), Column("usd", "cost", "USD"),
)  # fmt: skip
HALVINGS = 200
RANGE = (1.0, 1e15)  # seconds between interruptions of a job in which the break-even lies


class Stops:
    """What stops the run: failures, and interruptions of a given mean time between them."""

    def __init__(self, base: Base, values: Mapping[str, Any]) -> None:
        failures = base.failures(base.group)
        self.useful = scalar(failures.seconds.inputs["seconds"])
        self.mttf, self.written = scalar(failures.mttf), scalar(failures.checkpoint_time)
        self.restart, self.replacement = base.rates.restart_time.value, values.get("replacement_time", 0.0)
        self.saved = values.get("preemption_notice", 0.0) >= self.written  # the notice is long enough for a checkpoint

    def interval(self, interruption: float) -> Term:
        """Work between checkpoints that loses least, where only what comes without notice repeats work."""
        mttf = self.mttf if self.saved else float(law.either_mttf(self.mttf, interruption))
        return leaf("checkpoint interval on spot", law.checkpoint_interval_daly, "s", checkpoint_time=self.written, mttf=mttf)

    def wall(self, interruption: float) -> Term:
        """Time of the run; nan where it makes no progress."""
        interval = min(scalar(self.interval(interruption)), self.useful)
        if self.saved:
            working = law.time_with_failures(self.useful, interval, self.written, self.restart, self.mttf)
            pause = self.restart + self.replacement + self.written
            between = law.share_between_pauses(pause, interruption)
            return leaf("time on spot", paused_time, "s", seconds=float(working), share=float(between))
        stops = float(law.either_mttf(self.mttf, interruption))
        mean = (self.restart / self.mttf + (self.restart + self.replacement) / interruption) * stops
        return leaf(
            "time on spot", law.time_with_failures, "s", seconds=self.useful, checkpoint_interval=interval, checkpoint_time=self.written,
            restart_time=mean, mttf=stops,
        )  # fmt: skip


def paused_time(seconds: Any, share: Any) -> Any:
    """Time with failures, stretched by the pauses that interruptions with enough notice make: ``seconds / share``."""
    return seconds / share if share > 0.0 else math.nan


def compare(base: Base, values: Mapping[str, Any], folders: tuple[str, ...]) -> Part:
    """Cost and time on spot machines beside on-demand ones."""
    notes: list[Any] = []
    price = bind_price(values["spot_price"], base.group.cluster, folders, notes)
    base.assumptions.extend({**note, "name": "spot_price"} for note in notes)
    given = values["spot_mttf"] if "spot_mttf" in values else 3600.0 * base.node / values["spot_rate"]
    interruption = leaf("time between interruptions", law.cluster_mttf, "s", mttf_per_accelerator=given, gpus=base.gpus)
    stops = Stops(base, values)
    failures = base.failures(base.group)
    every = scalar(interruption)
    wall, interval = stops.wall(every), stops.interval(every)
    rows = [
        _row(base, "on demand", base.price.value, stops.mttf, scalar(failures.interval), scalar(failures.seconds), stops.useful),
        _row(base, "spot", price.value, float(law.either_mttf(stops.mttf, every)), scalar(interval), scalar(wall), stops.useful),
    ]
    even = break_even(stops, scalar(failures.seconds) * base.price.value / price.value if price.value else math.inf)
    table = Table("spot", "Spot machines against on-demand machines", filled_columns(WAYS, rows), rows)
    limit = Table("break_even", "Interruptions at which spot and on-demand machines cost the same", EVEN, [_even_row(base, even)])
    warnings = [caution("independent-interruptions")]
    return Part([_sentence(rows, stops), _even_sentence(base, even)], [table, limit], [interruption, interval, wall], warnings)


EVEN = (
    Column("interruption_seconds", "job interrupted every", "s"), Column("spot_mttf_hours", "accelerator hours between interruptions", "1"),
    Column("spot_rate", "interruptions of a node per hour", "1"),
)  # fmt: skip


def _row(base: Base, way: str, price: float, stop: float, interval: float, wall: float, useful: float) -> dict[str, Any]:
    """One way to rent."""
    goodput = useful / wall if wall > 0.0 else math.nan
    rate = base.rate * goodput
    known = not math.isnan(goodput)
    return {
        "way": way, "usd_per_hour": price * 3600.0, "stop_seconds": stop, "interval": interval, "goodput": goodput if known else 0.0,
        "tokens_per_second": rate if known else 0.0,
        "usd_per_million_tokens": float(cost.per_token(base.gpus, price, rate)) * 1e6 if known else None,
        "seconds": wall if known and base.tokens is not None else None,
        "usd": float(cost.rental(base.gpus, wall, price)) if known and base.tokens is not None else None,
    }  # fmt: skip


def break_even(stops: Stops, longest: float) -> float | None:
    """Mean time between interruptions of the job at which the run takes ``longest`` [s]; None where it takes longer without any.

    A run is never longer with fewer interruptions, so the time is found by halving its logarithm.
    """
    low, high = (math.log(end) for end in RANGE)
    if math.isnan(longest) or not scalar(stops.wall(RANGE[1])) <= longest:
        return None
    for _ in range(HALVINGS):
        middle = (low + high) / 2.0
        if scalar(stops.wall(math.exp(middle))) <= longest:
            high = middle
        else:
            low = middle
    return math.exp(high)


def _even_row(base: Base, even: float | None) -> dict[str, Any]:
    if even is None:
        return {}
    hours = even * base.gpus / 3600.0
    return {"interruption_seconds": even, "spot_mttf_hours": hours, "spot_rate": base.node / hours}


def _sentence(rows: list[dict[str, Any]], stops: Stops) -> str:
    """What spot machines cost against on-demand machines."""
    demand, spot = rows
    if spot["usd_per_million_tokens"] is None:
        return "spot machines: no progress, the run is stopped sooner than it restarts or writes a checkpoint"
    saved = "a checkpoint is written in the notice" if stops.saved else "no checkpoint is saved by the notice"
    text = f"spot machines: goodput {spot['goodput']:.1%}, a stop every {units.show(spot['stop_seconds'], 's')}; {saved}"
    if demand["usd_per_million_tokens"] is None or math.isnan(demand["usd_per_million_tokens"]):
        return text
    ratio = spot["usd_per_million_tokens"] / demand["usd_per_million_tokens"]
    return f"{text}; a useful token costs {ratio:.1%} of one on demand"


def _even_sentence(base: Base, even: float | None) -> str:
    if even is None:
        return "spot machines never cost less per useful token, even without interruptions"
    rate = base.node * 3600.0 / (even * base.gpus)
    return f"break-even: {rate:.3g} interruptions of a node per hour, one of the job every {units.show(even, 's')}"
