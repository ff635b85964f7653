"""What changed between two answers: the inputs that differ, the terms that moved, and which change moved which term."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ironlaw import units
from ironlaw.errors import QuestionError
from ironlaw.estimate.saved import Saved, read_answer
from ironlaw.questions.answer import Answer, Column, Table, filled_columns, read
from ironlaw.questions.diff import inputs
from ironlaw.questions.diff.causes import find_causes, signed
from ironlaw.questions.diff.options import OPTIONS
from ironlaw.questions.diff.terms import REST, moved

_RESULTS = (
    Column("answer", "answer"), Column("seconds", "step", "s"), Column("bytes", "memory", "B"), Column("mfu", "MFU", "%"),
    Column("tokens_per_second", "tokens/s", "1"), Column("days", "days", "1"), Column("usd", "USD", "USD"),
)  # fmt: skip


def ask(options: Mapping[str, Any], folders: tuple[str, ...] = ()) -> Answer:
    """The difference of two answers in files. The answer is no where anything differs."""
    paths = read(options, OPTIONS, "diff")
    if set(paths) != {"a", "b"}:
        raise QuestionError("diff needs two answers: ironlaw diff A.json B.json")
    a, b = (read_answer(paths[name]) for name in ("a", "b"))
    if a.name == b.name:
        a, b = a._replace(name=paths["a"]), b._replace(name=paths["b"])
    given, chosen = inputs.option_rows(a, b)
    catalogue, constants = inputs.record_rows(a, b)
    versions, assumed = inputs.version_rows(a, b), inputs.assumption_rows(a, b)
    time, memory = (moved(a.data[key]["tree"], b.data[key]["tree"]) for key in ("step", "memory"))
    results, changes = _results(a, b), (given, chosen, catalogue, constants, versions)
    equal = not any((*changes, assumed)) and not any(results[2].get(column.key) for column in _RESULTS[1:])
    causes = find_causes(a, b, folders)
    names = Column("a", a.name), Column("b", b.name)

    def table(name: str, title: str, columns: Sequence[Column], rows: list[dict[str, Any]]) -> Table:
        return Table(name, title, tuple(columns), rows)

    def terms(name: str, title: str, unit: str, rows: list[dict[str, Any]]) -> Table:
        columns = [Column("term", "term"), *(Column(c.key, c.title, unit) for c in names), Column("difference", "difference", unit)]
        return table(name, title, columns, rows if rows[-1]["difference"] or len(rows) > 2 else [])

    return Answer(
        title=f"From {a.name} to {b.name}",
        headline=["The answers are the same."]
        if equal
        else _headline(results, (given, chosen, catalogue, constants, versions), time, memory),
        tables=[
            table("results", "Results", filled_columns(_RESULTS, results), [] if equal else results),
            table("inputs", "Options given that differ", (Column("option", "option"), *names), given),
            table("plan", "Plan", (Column("option", "option"), *names), chosen),
            table("versions", "Versions", (Column("version", ""), *names), versions),
            table("catalogue", "Catalogue", (Column("record", "record"), Column("value", "value"), *names), catalogue),
            table("constants", "Constants", (Column("record", "record"), Column("value", "value"), *names), constants),
            table("assumptions", "Assumptions", (Column("assumption", "assumption"), *names), assumed),
            terms("time", "Terms of the step time", "s", time),
            terms("memory", "Terms of the memory", "B", memory),
            table(
                "causes",
                "Each change alone",
                (Column("change", "change"), Column("seconds", "step", "s"), Column("bytes", "memory", "B"), Column("moved", "moved most")),
                causes.rows,
            ),
        ],
        values={"equal": equal},
        warnings=[f"no causes: {causes.why_not}"] if causes.why_not else [],
        feasible=equal,
        folders=folders,
    )


def _results(a: Saved, b: Saved) -> list[dict[str, Any]]:
    """The results of both answers, and their differences."""
    rows = []
    for answer in (a, b):
        data, run = answer.data, answer.data.get("run") or {}
        rates = data["throughput"]
        rows.append({
            "answer": answer.name, "seconds": answer.seconds, "bytes": data["memory"]["device"], "mfu": rates.get("mfu"),
            "tokens_per_second": rates.get("tokens_per_second"), "days": run.get("days"), "usd": run.get("usd"),
        })  # fmt: skip
    pairs = {key: (rows[0][key], rows[1][key]) for key in rows[0] if key != "answer"}
    differences = {key: None if None in pair else pair[1] - pair[0] for key, pair in pairs.items()}
    return [*rows, {"answer": "difference", **differences}]


def _headline(
    results: list[dict[str, Any]], changes: tuple[list[Any], ...], time: list[dict[str, Any]], memory: list[dict[str, Any]]
) -> list[str]:
    """What changed, by how much, and which terms moved most."""
    kinds = ("option given", "option of the plan", "value of the catalogue", "constant", "version")
    plurals = ("options given", "options of the plan", "values of the catalogue", "constants", "versions")
    counted = [f"{len(rows)} {one if len(rows) == 1 else many}" for rows, one, many in zip(changes, kinds, plurals, strict=True) if rows]
    lines = [f"{' and '.join(counted) or 'no input'} changed".capitalize() + "."]
    for key, name, unit, rows in (("seconds", "step time", "s", time), ("bytes", "memory", "B", memory)):
        before, after, difference = (row[key] for row in results)
        if before is None or after is None:
            lines.append(f"{name}: no estimate of {results[0 if before is None else 1]['answer']}.")
        elif difference:
            most = ", ".join(f"{row['term']} {signed(row['difference'], unit)}" for row in rows[:-1][:2] if row["term"] != REST)
            share = f" ({difference / before:+.1%})" if before else ""
            lines.append(
                f"{name}: {units.show(before, unit)} to {units.show(after, unit)}, {signed(difference, unit)}{share}"
                + (f"; moved most: {most}." if most else ".")
            )
        else:
            lines.append(f"{name}: the same, {units.show(after, unit)}.")
    return [line[0].upper() + line[1:] for line in lines]
