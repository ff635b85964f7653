"""What changed between two answers: the inputs that differ, the terms that moved, and which change moved which term."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ironlaw import units
from ironlaw.cautions.record import Sentence
from ironlaw.cautions.table import caution
from ironlaw.errors import QuestionError
from ironlaw.estimate.answer.saved import Saved, read_answer
from ironlaw.questions.answer import Answer, Column, Table, filled_columns
from ironlaw.questions.diff.answers import compare_answers, read_answer_of_verb
from ironlaw.questions.diff.causes import find_causes, signed
from ironlaw.questions.diff.inputs import changed_inputs
from ironlaw.questions.diff.terms import REST, WHOLE, moved

_RESULTS = (
    Column("answer", "answer"), Column("seconds", "step", "s"), Column("bytes", "memory", "B"), Column("mfu", "MFU", "%"),
    Column("tokens_per_second", "tokens/s", "1"), Column("days", "days", "1"), Column("usd", "USD", "USD"),
)  # fmt: skip
_INPUTS = {  # table -> its title, what one and several of its rows are called, and the columns before those of the answers
    "inputs": ("Options given that differ", "option given", "options given", ("option",)),
    "plan": ("Plan", "option of the plan", "options of the plan", ("option",)),
    "versions": ("Versions", "version", "versions", ("version",)),
    "catalogue": ("Catalogue", "value of the catalogue", "values of the catalogue", ("record", "value")),
    "constants": ("Constants", "constant", "constants", ("record", "value")),
    "assumptions": ("Assumptions", "assumption", "assumptions", ("assumption",)),
}
_CAUSES = (Column("change", "change"), Column("seconds", "step", "s"), Column("bytes", "memory", "B"), Column("moved", "moved most"))

Rows = list[dict[str, Any]]


def ask(paths: dict[str, Any], folders: tuple[str, ...] = ()) -> Answer:
    """The difference of two answers in files. The answer is no where they differ in more than their version."""
    if set(paths) != {"a", "b"}:
        raise QuestionError("diff needs two answers: ironlaw diff A.json B.json")
    others = [read_answer_of_verb(paths[name]) for name in ("a", "b")]
    if others[0] is not None and others[1] is not None:
        first, second = (Path(paths[name]).name for name in ("a", "b"))
        return compare_answers(others[0], others[1], (first, second) if first != second else (paths["a"], paths["b"]))
    a, b = (read_answer(paths[name]) for name in ("a", "b"))
    if a.name == b.name:
        a, b = a._replace(name=paths["a"]), b._replace(name=paths["b"])
    return difference_of(a, b, folders)


def difference_of(a: Saved, b: Saved, folders: tuple[str, ...]) -> Answer:
    """What differs between two estimates; the answer is no where they differ in more than their version."""
    changes = changed_inputs(a, b)
    time, memory = (moved(a.data[key]["tree"], b.data[key]["tree"]) for key in ("step", "memory"))
    results, causes = _results(a, b), find_causes(a, b, folders)
    moves = any(row["difference"] for row in (*time, *memory)) or any(results[2].get(column.key) for column in _RESULTS[1:])
    equal = not moves and not any(rows for name, rows in changes.items() if name != "versions")
    names = (("a", a.name), ("b", b.name))

    def inputs_table(name: str) -> Table:
        title, _, _, before = _INPUTS[name]
        return Table(name, title, (*(Column(key, key) for key in before), *(Column(*item) for item in names)), changes[name])

    def terms_table(name: str, title: str, unit: str, rows: Rows) -> Table:
        columns = (Column("term", "term"), *(Column(key, file, unit) for key, file in names), Column("difference", "difference", unit))
        return Table(name, title, columns, rows if any(row["difference"] for row in rows) else [])

    return Answer(
        title=f"From {a.name} to {b.name}",
        headline=_headline(equal, results, changes, time, memory),
        tables=[
            Table("results", "Results", filled_columns(_RESULTS, results), [] if equal else results),
            *(inputs_table(name) for name in _INPUTS),
            terms_table("time", "Terms of the step time", "s", time),
            terms_table("memory", "Terms of the memory", "B", memory),
            Table("causes", "Each change alone", _CAUSES, causes.rows),
        ],
        values={"equal": equal},
        warnings=[caution("no-causes", why=causes.why_not)] if causes.why_not else [],
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


def _headline(equal: bool, results: Rows, changes: Mapping[str, Rows], time: Rows, memory: Rows) -> list[str]:
    """What changed, by how much, and which terms moved most."""
    if equal:
        return [Sentence(f"The answers are the same{', from another version' if changes['versions'] else ''}.", "equal")]
    named = ((rows, *_INPUTS[name][1:3]) for name, rows in changes.items() if rows and name != "assumptions")
    counted = [f"{len(rows)} {one if len(rows) == 1 else many}" for rows, one, many in named]
    lines: list[tuple[str, str, dict[str, float]]] = [(f"{' and '.join(counted) or 'no input'} changed.", "changed", {})]
    for key, name, unit, rows in (("seconds", "step time", "s", time), ("bytes", "memory", "B", memory)):
        before, after, difference = (row[key] for row in results)
        if before is None or after is None:
            lines.append((f"{name}: no estimate of {results[0 if before is None else 1]['answer']}.", f"{key}-unknown", {}))
        elif difference:
            most = ", ".join(f"{row['term']} {signed(row['difference'], unit)}" for row in rows[:2] if row["term"] not in (REST, WHOLE))
            share = f" ({difference / before:+.1%})" if before else ""
            change = f"{units.show(before, unit)} to {units.show(after, unit)}, {signed(difference, unit)}{share}"
            lines.append((f"{name}: {change}{f'; moved most: {most}' if most else ''}.", key, {"a": before, "b": after}))
        else:
            lines.append((f"{name}: the same, {units.show(after, unit)}.", key, {"a": before, "b": after}))
    return [Sentence(line[0].upper() + line[1:], code, told) for line, code, told in lines]
