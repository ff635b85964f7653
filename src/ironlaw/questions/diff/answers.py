"""The difference of two answers of any verb but estimate and plan: the question, versions, assumptions, and every value that moved."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from ironlaw import files
from ironlaw.cautions.record import Sentence
from ironlaw.earlier import respell
from ironlaw.errors import InputError, QuestionError, quote
from ironlaw.estimate.answer.saved import LARGEST
from ironlaw.questions.answer import Answer, Column, Table
from ironlaw.questions.diff.inputs import VERSIONS, shown

MOST_VALUES = 200_000  # of one answer
_COMMON = {*VERSIONS, "assumptions", "warnings", "title", "headline", "terms", "sources", "asked"}
_INPUTS = {  # table -> its title, and what its rows are called
    "inputs": ("Options given that differ", "option"),
    "versions": ("Versions", "version"),
    "assumptions": ("Assumptions", "assumption"),
}
_ROUNDING = 1e-12  # relative: a smaller difference is rounding

Data = Mapping[str, Any]


def read_answer_of_verb(path: str) -> Data | None:
    """The JSON of a verb that answers in tables; None for any other file, which ``read_answer`` explains."""
    if not files.is_there(Path(path)):
        return None
    return check_answer_of_verb(files.read_saved(Path(path), LARGEST), path)


def check_answer_of_verb(data: Any, path: str) -> Data | None:
    """The values of a file as the answer of a verb that answers in tables; None where they are no such answer."""
    keys = {"schema_version", "headline", "feasible", "assumptions", "asked"}
    if not isinstance(data, dict) or not {"schema_version", "headline", "feasible"} <= set(data):
        return None
    if not keys <= set(data):
        raise InputError(f"{path}: without the key 'asked', made by an earlier version: ask the question again with --json")
    asked, assumptions = data["asked"], data["assumptions"]
    if not isinstance(asked, dict) or not isinstance(asked.get("given"), dict) or not isinstance(asked.get("verb"), str):
        raise InputError(f"{path}: asked is {quote(asked)}, not a verb with the options given")
    if not isinstance(assumptions, list) or not all(isinstance(item, dict) for item in assumptions):
        raise InputError(f"{path}: assumptions is {quote(assumptions)}, not a list of tables")
    verb, given = respell(asked["verb"], asked["given"])
    return {**data, "asked": {"verb": verb, "given": given}}


def compare_answers(a: Data, b: Data, names: tuple[str, str]) -> Answer:
    """What differs between two answers of one verb; the answer is no where anything but the version does."""
    verbs = [data["asked"]["verb"] for data in (a, b)]
    if verbs[0] != verbs[1]:
        raise QuestionError(f"{names[0]} answers {verbs[0]}, {names[1]} answers {verbs[1]}: compare two answers of one verb")
    pairs = {
        "inputs": [data["asked"]["given"] for data in (a, b)],
        "versions": [{name: data.get(name) for name in VERSIONS} for data in (a, b)],
        "assumptions": [{str(item.get("name")): item.get("value") for item in data["assumptions"]} for data in (a, b)],
    }
    changed = {name: list(_changes(_INPUTS[name][1], before, after)) for name, (before, after) in pairs.items()}
    moved = list(_moved(_values_of(a), _values_of(b)))
    equal = not moved and not changed["inputs"] and not changed["assumptions"]
    columns = (Column("a", names[0]), Column("b", names[1]))
    tables = [Table(name, title, (Column(key, key), *columns), changed[name]) for name, (title, key) in _INPUTS.items()]
    sizes = [Column(key, title, "1") for key, title in (("a", names[0]), ("b", names[1]), ("difference", "difference"))]
    numbers = [row for row in moved if row["difference"] is not None]
    words = [{**row, "a": shown(row["a"]), "b": shown(row["b"])} for row in moved if row["difference"] is None]
    numbers.sort(key=lambda row: -abs(row["share"] or 0.0))
    return Answer(
        title=f"From {names[0]} to {names[1]}, answers of ironlaw {verbs[0]}",
        headline=_headline(equal, changed, numbers, words),
        tables=[
            *tables,
            Table("values", "Values that moved, in SI units", (Column("value", "value"), *sizes, Column("share", "change", "%")), numbers),
            Table("words", "Words that changed", (Column("value", "value"), *columns), words),
        ],
        values={"equal": equal, "verb": verbs[0]},
        feasible=equal,
    )


def _headline(equal: bool, changed: Mapping[str, list[Any]], numbers: list[dict[str, Any]], words: list[Any]) -> list[str]:
    """How much changed, and the value that moved most."""
    if equal:
        return [Sentence(f"The answers are the same{', from another version' if changed['versions'] else ''}.", "equal")]
    counted = [f"{len(rows)} {_INPUTS[name][1]}{'' if len(rows) == 1 else 's'}" for name, rows in changed.items() if rows]
    text = f"Changed: {', '.join(counted) or 'no input'}; {len(numbers)} numbers and {len(words)} words of the answer moved."
    lines: list[str] = [Sentence(text, "changed", {"numbers": len(numbers), "words": len(words)})]
    if numbers and numbers[0]["share"] is not None:
        most = numbers[0]
        text = f"{most['value']} moved most: {shown(most['a'])} to {shown(most['b'])} ({most['share']:+.1%})."
        lines.append(Sentence(text, "moved-most", {name: most[name] for name in ("value", "a", "b", "share")}))
    return lines


def _changes(key: str, before: Data, after: Data) -> Iterator[dict[str, str]]:
    for name in [*before, *(name for name in after if name not in before)]:
        if before.get(name) != after.get(name):
            yield {key: str(name), "a": shown(before.get(name)), "b": shown(after.get(name))}


def _moved(before: Data, after: Data) -> Iterator[dict[str, Any]]:
    """Values that differ, or that one answer does not have; a row that several tables show is listed once."""
    seen: set[Any] = set()
    for name in [*before, *(name for name in after if name not in before)]:
        x: Any = before.get(name)
        y: Any = after.get(name)
        row = (name.partition("[")[2], str(x), str(y))
        if x == y or (row[0] and row in seen):
            continue
        seen.add(row)
        difference = _difference(x, y)
        if difference is not None and abs(difference) <= _ROUNDING * abs(x):
            continue
        yield {"value": name, "a": x, "b": y, "difference": difference, "share": difference / x if difference is not None and x else None}


def _difference(x: Any, y: Any) -> float | None:
    """The second value less the first; None where one of them is no number."""
    numbers = all(isinstance(value, (int, float)) and not isinstance(value, bool) for value in (x, y))
    return y - x if numbers else None


def _values_of(data: Data) -> dict[str, Any]:
    """Every value of an answer by its path. A row of a table is named by its first text, so that rows in another order are paired."""
    found: dict[str, Any] = {}

    def visit(path: str, value: Any, depth: int = 0) -> None:
        if len(found) > MOST_VALUES or depth > 20:
            raise InputError(f"an answer with more than {MOST_VALUES:,} values, or nested more than 20 deep, is not compared")
        if isinstance(value, dict):
            for key, item in value.items():
                visit(f"{path}.{key}" if path else str(key), item, depth + 1)
        elif isinstance(value, list):
            names = [_name_of_row(item, at) for at, item in enumerate(value)]
            for at, (name, item) in enumerate(zip(names, value, strict=True)):
                visit(f"{path}[{name if names.count(name) == 1 else at}]", item, depth + 1)
        else:
            found[path] = value

    visit("", {key: value for key, value in data.items() if key not in _COMMON})
    return found


def _name_of_row(item: Any, at: int) -> str:
    """The first text of a row, or its position."""
    if isinstance(item, dict):
        return next((value for value in item.values() if isinstance(value, str) and value and len(value) <= 60), str(at))
    return str(at)
