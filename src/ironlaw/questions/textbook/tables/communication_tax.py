"""Speed-up by a serial share (Amdahl's curve, simplified), by a constant communication share, and by estimate."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import Any

from ironlaw.cautions.record import Sentence
from ironlaw.cautions.table import caution
from ironlaw.errors import IronlawError
from ironlaw.estimate.answer.estimate import answer
from ironlaw.law import run, wide_area
from ironlaw.question.forms import need
from ironlaw.questions.answer import Answer, Column, Table
from ironlaw.terms import leaf

COUNTS = tuple(2.0**k for k in range(9))
SHARES = (0.0, 0.05, 0.15, 0.4)
ESTIMATE = (
    Column("gpus", "accelerators", "1"), Column("tokens_per_second", "tokens/s", "1"), Column("speedup", "speed-up", "1"),
    Column("efficiency", "scaling efficiency", "%"), Column("network", "network, of the step", "%"), Column("r", "serial share r", "1"),
    Column("why_not", ""),
)  # fmt: skip


@dataclass(frozen=True)
class Count:
    """The estimate on one count of accelerators."""

    gpus: float
    tokens_per_second: float | None = None
    speedup: float | None = None  # over the fewest that fit
    efficiency: float | None = None
    network: float | None = None
    r: float | None = None  # the serial share that Amdahl's curve would need
    why_not: str = ""


def table(values: dict[str, Any], folders: tuple[str, ...]) -> Answer:
    """Speed-up over accelerators for each share; with a model also its estimate, and the serial share that would explain it."""
    shares = values.get("shares", SHARES)
    counts = COUNTS if "gpus" not in values else tuple(sorted({*(n for n in COUNTS if n < values["gpus"]), float(values["gpus"])}))
    last, worst = counts[-1], max(shares)
    curve = leaf("the curve", run.amdahl_speedup, "1", gpus=last, serial_fraction=worst)
    worth = leaf("a constant share", wide_area.effective_accelerators, "1", gpus=last, communication_share=worst)
    limit = f"the speed-up stays below {1 / worst:.3g}" if worst > 0 else "the speed-up has no limit"
    serial_share = f"with a serial share r = {worst:g}, {last:g} accelerators are {float(curve.value):.3g} times as fast as one; {limit}"
    constant_share = f"with {worst:g} of every step spent on communication they are {float(worth.value):,.4g} times as fast"
    told = {"share": worst, "gpus": last}
    headline = [
        Sentence(f"simplified: {serial_share}", "serial-share", {**told, "speedup": float(curve.value)}),
        Sentence(f"{constant_share}: that share is not Amdahl's r", "constant-share", {**told, "speedup": float(worth.value)}),
    ]
    columns = (Column("gpus", "accelerators", "1"), *(Column(f"r{r:g}", f"r = {r:g}", "1") for r in shares))
    amdahl = [{"gpus": n, **{f"r{r:g}": float(run.amdahl_speedup(n, r)) for r in shares}} for n in counts]
    constant = [{"gpus": n, **{f"r{r:g}": float(wide_area.effective_accelerators(n, r)) for r in shares}} for n in counts]
    tables = [
        Table("curve", "Speed-up by N / (1 + (N - 1) r), simplified", columns, amdahl),
        Table("constant_share", "Speed-up where a share r of every step is communication", columns, constant),
    ]
    if "model" in values:
        estimated = _estimate_counts(values, counts, folders)
        tables.append(Table("estimate", "By estimate, with one global batch", ESTIMATE, [asdict(count) for count in estimated]))
        fitting = [count for count in estimated if count.speedup is not None]
        if fitting:
            end = fitting[-1]
            serial = "" if end.r is None else f"; Amdahl's curve would need r = {end.r:.3g}, which changes with the count"
            text = (
                f"by estimate {end.gpus:g} accelerators are {end.speedup:,.4g} times as fast as {fitting[0].gpus:g}, "
                f"a scaling efficiency of {end.efficiency:.0%}{serial}"
            )
            headline.append(Sentence(text, "estimate", {"gpus": end.gpus, "speedup": end.speedup, "efficiency": end.efficiency}))
    warning = caution("amdahl-only")
    return Answer("Communication tax", headline, tuple(tables), (curve, worth), warnings=(warning,), folders=folders)


def _estimate_counts(values: dict[str, Any], counts: tuple[float, ...], folders: tuple[str, ...]) -> list[Count]:
    """The model on every count, with one global batch; speed-ups over the fewest accelerators that fit it."""
    need(values, "on")
    asked = {name: value for name, value in values.items() if name not in ("shares", "gpus")}
    if "global_batch_size" not in asked and "global_batch_tokens" not in asked:
        asked["global_batch_size"] = float(answer({**asked, "gpus": counts[-1]}, folders).row(0)["plan"]["global_batch_size"])
    estimated = [_estimate_count({**asked, "gpus": n}, folders) for n in counts]
    first = next((count for count in estimated if count.tokens_per_second is not None), None)
    return [count if first is None else _with_speedup(count, first) for count in estimated]


def _estimate_count(asked: dict[str, Any], folders: tuple[str, ...]) -> Count:
    """The estimate on one count of accelerators, or why there is none."""
    try:
        row = answer(asked, folders).row(0)
    except IronlawError as error:
        return Count(asked["gpus"], why_not=str(error))
    if row["step"]["seconds"] is None or not row["memory"]["fits"]:
        return Count(asked["gpus"], why_not="does not fit" if row["step"]["seconds"] else "no such plan")
    return Count(asked["gpus"], row["throughput"]["tokens_per_second"], network=row["bound"]["shares"]["network"])


def _with_speedup(count: Count, first: Count) -> Count:
    """A count with its speed-up over the first, and the serial share that explains it."""
    if count.tokens_per_second is None or first.tokens_per_second is None:
        return count
    times, more = count.tokens_per_second / first.tokens_per_second, count.gpus / first.gpus
    r = max((more / times - 1.0) / (more - 1.0), 0.0) if more > 1 and times > 0 else None
    return replace(count, speedup=times, efficiency=times / more, r=r)
