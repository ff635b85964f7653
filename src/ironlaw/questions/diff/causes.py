"""Which change moved which term: the first answer is asked again with one change of the second at a time."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from ironlaw import units
from ironlaw.errors import IronlawError
from ironlaw.estimate.answer.estimate import answer
from ironlaw.estimate.answer.saved import Saved
from ironlaw.estimate.what_if.change_options import change_plan
from ironlaw.questions.diff.inputs import changed_options, record_rows, shown
from ironlaw.questions.diff.terms import most_moved

_SAME = 1e-9  # of a value: a smaller difference is rounding
TOGETHER = "what these changes do together"

Data = Mapping[str, Any]


class Causes(NamedTuple):
    """Changes, each with the terms that it moved; ``why_not`` says why there are none."""

    rows: list[dict[str, Any]]
    why_not: str = ""


def find_causes(a: Saved, b: Saved, folders: tuple[str, ...]) -> Causes:
    """Every change alone, then what they do together; their differences sum to that of the answers."""
    if a.seconds is None or b.seconds is None:
        return Causes([], "one of the plans cannot run, so no change can be tried alone")
    try:
        start, end = ask_again(a.held, folders), ask_again(b.held, folders)
    except IronlawError as error:
        return Causes([], f"the answers cannot be asked again: {error}")
    rows = [] if same_numbers(a.data, start) else [_row(_since(a, start), a.data, start)]
    alone = list(_alone(a, b, start, folders))
    rows += alone
    rest = {key: _difference(start, end)[key] - sum(row[key] or 0.0 for row in alone) for key in ("seconds", "bytes")}
    scale = {"seconds": a.seconds, "bytes": a.data["memory"]["device"] or 1.0}
    if len(alone) > 1 and any(abs(value) > _SAME * scale[key] for key, value in rest.items()):
        rows.append({"change": TOGETHER, **rest, "moved": ""})
    if not same_numbers(end, b.data):
        rows.append(_row(_since(b, end), end, b.data))
    return Causes(sorted(rows, key=lambda row: (row["change"] == TOGETHER, -abs(row["seconds"]))))


def _alone(a: Saved, b: Saved, start: Data, folders: tuple[str, ...]) -> Iterator[dict[str, Any]]:
    """Each change of an option alone, with those that follow from it. Changes that make no plan alone are made together."""
    left = {name: after for name, (_, after) in changed_options(a, b).items()}
    joined: dict[str, Any] = {}
    for name in list(left):
        if name not in left:
            continue
        changes = _with_followers(a, name, left, folders)
        tried = _try({**a.held, **changes}, folders)
        if tried is None:
            joined[name] = left.pop(name)
            continue
        left = {other: value for other, value in left.items() if other not in changes}
        row = _row(_words(a, changes), start, tried)
        if row["seconds"] or row["bytes"]:
            yield row
    if joined and (tried := _try({**a.held, **joined}, folders)) is not None:
        yield _row(_words(a, joined), start, tried)


def _with_followers(a: Saved, name: str, left: Mapping[str, Any], folders: tuple[str, ...]) -> dict[str, Any]:
    """A change, and the changes of ``left`` that follow from it when the plan is held; alone where others would follow."""
    if left[name] is None:
        return {name: None}
    options, _ = change_plan(a, {name: left[name]}, folders)
    moved = {key: options.get(key) for key in {*a.held, *options} if options.get(key) != a.held.get(key)}
    return {key: left[key] for key in left if key in moved} if all(left.get(key) == moved[key] for key in moved) else {name: left[name]}


def _words(a: Saved, changes: Mapping[str, Any]) -> str:
    """Options with their values before and after."""
    return ", ".join(f"{name} {shown(a.value(name))} to {shown(value)}" for name, value in changes.items())


def _since(saved: Saved, now: Data) -> str:
    """What differs between the tool that made an answer and today's, where it gives other numbers for the same options."""
    today = saved._replace(data=now)
    catalogue, constants = record_rows(saved, today)
    version = saved.data.get("tool_version") != now["tool_version"]
    found = [name for name, rows in (("catalogue", catalogue), ("constants", constants), ("version of the tool", version)) if rows]
    return f"{' and '.join(found) or 'laws, under the same version,'} of {saved.name}, against those installed"


def _try(options: Mapping[str, Any], folders: tuple[str, ...]) -> Data | None:
    """The answer to some options; None where they make no plan that can run."""
    try:
        data = ask_again(options, folders)
    except IronlawError:
        return None
    return None if data["step"]["seconds"] is None else data


def ask_again(options: Mapping[str, Any], folders: tuple[str, ...]) -> Data:
    """The answer of today's tool to options that have been read."""
    data: Data = answer({name: value for name, value in options.items() if value is not None}, folders).row(0)
    return data


def same_numbers(a: Data, b: Data) -> bool:
    """True where two answers have the same step time and memory."""
    pairs = ((a["step"]["seconds"], b["step"]["seconds"]), (a["memory"]["device"], b["memory"]["device"]))
    return all(x == y or (x is not None and y is not None and abs(x - y) <= _SAME * abs(x)) for x, y in pairs)


def _difference(before: Data, after: Data) -> dict[str, float]:
    return {
        "seconds": (after["step"]["seconds"] or 0.0) - (before["step"]["seconds"] or 0.0),
        "bytes": (after["memory"]["device"] or 0.0) - (before["memory"]["device"] or 0.0),
    }


def _row(change: str, before: Data, after: Data) -> dict[str, Any]:
    """A change with the differences it makes, and the terms of each total that it moves most."""
    words = [
        f"{name} {signed(value, unit)}"
        for key, unit in (("step", "s"), ("memory", "B"))
        for name, value in most_moved(before[key]["tree"], after[key]["tree"])
    ]
    return {"change": change, **_difference(before, after), "moved": ", ".join(words) or "nothing"}


def signed(value: float, unit: str) -> str:
    """A difference with its sign.

    >>> signed(2048.0, "B"), signed(-0.5, "s")
    ('+2 KiB', '-500 ms')
    """
    return f"{'+' if value > 0 else ''}{units.show(value, unit)}"
