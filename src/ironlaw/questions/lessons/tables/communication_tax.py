"""Document 003's communication-tax curve, by name and simplified, beside a constant share of every step and beside the estimate."""

from __future__ import annotations

from typing import Any

from ironlaw.errors import IronlawError
from ironlaw.law import run, wide_area
from ironlaw.questions.answer import Answer, Column, Table, need
from ironlaw.terms import Term, leaf

COUNTS = tuple(2.0**k for k in range(9))
SHARES = (0.0, 0.05, 0.15, 0.4)


def table(values: dict[str, Any], folders: tuple[str, ...]) -> Answer:
    """Speed-up over accelerators for each share; with a model also what its estimate says and the share that would mean."""
    shares = values.get("shares", SHARES)
    counts = COUNTS if "gpus" not in values else tuple(sorted({*(n for n in COUNTS if n < values["gpus"]), float(values["gpus"])}))
    rows = [{"gpus": n, **{f"r{r:g}": float(run.amdahl_speedup(n, r)) for r in shares}} for n in counts]
    last, worst = counts[-1], max(shares)
    curve = leaf("the curve", run.amdahl_speedup, "1", gpus=last, serial_fraction=worst)
    worth = leaf("a constant share", wide_area.effective_accelerators, "1", gpus=last, communication_share=worst)
    limit = f"no count passes {1 / worst:.3g}" if worst > 0 else "nothing limits it"
    headline = [
        f"simplified: by the curve {last:g} accelerators at r = {worst:g} are worth {float(curve.value):.3g}; {limit}",
        f"a communication share of {worst:g} of every step leaves {float(worth.value):,.4g}: the curve's r is Amdahl's serial part",
    ]
    columns = [Column("gpus", "accelerators", "1"), *(Column(f"r{r:g}", f"r = {r:g}", "1") for r in shares)]
    tables = [Table("curve", "Speed-up by N / (1 + (N - 1) r), simplified", tuple(columns), rows)]
    constant = [{"gpus": n, **{f"r{r:g}": float(wide_area.effective_accelerators(n, r)) for r in shares}} for n in counts]
    tables.append(Table("constant_share", "Speed-up where a share r of every step is communication", tuple(columns), constant))
    terms: list[Term] = [curve, worth]
    if "model" in values:
        found = _estimated(values, counts, folders)
        tables.append(Table("estimate", "By estimate, with one global batch", ESTIMATE, found))
        known = [row for row in found if row["speedup"] is not None]
        if known:
            end = known[-1]
            told = "" if end["r"] is None else f": what the curve would call r = {end['r']:.3g}, and it changes with the count"
            headline.append(
                f"by estimate {end['gpus']:g} accelerators are worth {end['speedup']:,.4g} times {known[0]['gpus']:g}, "
                f"{end['efficiency']:.0%} of in proportion{told}"
            )
    return Answer("Communication tax", headline, tuple(tables), tuple(terms), {}, [], _WARNINGS, folders=folders)


_WARNINGS = ("the curve knows no model, no network and nothing that hides beside computation: ironlaw estimate MODEL counts all three",)
ESTIMATE = (
    Column("gpus", "accelerators", "1"), Column("tokens_per_second", "tokens/s", "1"), Column("speedup", "speed-up", "1"),
    Column("efficiency", "of in proportion", "%"), Column("network", "network, of the step", "%"), Column("r", "the curve's r", "1"),
    Column("why_not", ""),
)  # fmt: skip


def _estimated(values: dict[str, Any], counts: tuple[float, ...], folders: tuple[str, ...]) -> list[dict[str, Any]]:
    """The model at every count; speed-up over the fewest that hold it, times that count."""
    from ironlaw.estimate.answer import answer

    need(values, "on")
    asked = {name: value for name, value in values.items() if name not in ("shares", "gpus")}
    if "global_batch_size" not in asked and "global_batch_tokens" not in asked:
        asked["global_batch_size"] = float(answer({**asked, "gpus": counts[-1]}, folders).row(0)["plan"]["global_batch_size"])
    rows: list[dict[str, Any]] = []
    first: dict[str, Any] | None = None
    for n in counts:
        row: dict[str, Any] = {"gpus": n, **dict.fromkeys(("tokens_per_second", "speedup", "efficiency", "network", "r")), "why_not": ""}
        rows.append(row)
        try:
            one = answer({**asked, "gpus": n}, folders).row(0)
        except IronlawError as error:
            row["why_not"] = str(error)
            continue
        if one["step"]["seconds"] is None or not one["memory"]["fits"]:
            row["why_not"] = "does not fit" if one["step"]["seconds"] else "no such plan"
            continue
        row |= {"tokens_per_second": one["throughput"]["tokens_per_second"], "network": one["bound"]["shares"]["network"]}
        first = first or row
        times, more = row["tokens_per_second"] / first["tokens_per_second"], n / first["gpus"]
        row |= {"speedup": times, "efficiency": times / more}
        if more > 1 and times > 0:
            row["r"] = max((more / times - 1.0) / (more - 1.0), 0.0)
    return rows
