"""The differences between the inputs of two answers: options, values of records, versions, assumptions."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from ironlaw.errors import quote
from ironlaw.estimate.answer.saved import Saved
from ironlaw.question.assumptions import printed

CONSTANTS = ("calibration", "systems", "bands")  # kinds of records that hold fitted and measured constants
VERSIONS = ("tool_version", "schema_version", "calibration_version", "catalog_hash")
_ABSENT = "-"


def changed_inputs(a: Saved, b: Saved) -> dict[str, list[dict[str, str]]]:
    """Everything that two answers were made from and that differs, by kind."""
    given, chosen = option_rows(a, b)
    catalogue, constants = record_rows(a, b)
    return {
        "inputs": given,
        "plan": chosen,
        "catalogue": catalogue,
        "constants": constants,
        "versions": version_rows(a, b),
        "assumptions": assumption_rows(a, b),
    }


def changed_options(a: Saved, b: Saved) -> dict[str, tuple[Any, Any]]:
    """The options that hold the answers and differ, by name, as (A, B); None where an answer leaves one to its default."""
    names = [*a.held, *(name for name in b.held if name not in a.held)]
    return {name: (a.held.get(name), b.held.get(name)) for name in names if a.held.get(name) != b.held.get(name)}


def option_rows(a: Saved, b: Saved) -> tuple[list[dict[str, str]], list[dict[str, str]]]:
    """Options that differ: those that a user gave to one of the answers, and those of the plan that the tool chose."""
    given: list[dict[str, str]] = []
    chosen: list[dict[str, str]] = []
    for name in changed_options(a, b):
        by_user = name in a.given or name in b.given
        (given if by_user else chosen).append({"option": name, "a": shown(a.value(name)), "b": shown(b.value(name))})
    return given, chosen


def record_rows(a: Saved, b: Saved) -> tuple[list[dict[str, str]], list[dict[str, str]]]:
    """Values of records that differ: of the catalogue, and of its constants. A record that one answer does not use is one row."""
    before, after = a.data["records"], b.data["records"]
    catalogue: list[dict[str, str]] = []
    constants: list[dict[str, str]] = []
    for name in [*before, *(name for name in after if name not in before)]:
        rows = constants if name.partition("/")[0] in CONSTANTS else catalogue
        if name not in before or name not in after:
            used = (_ABSENT, "used") if name in after else ("used", _ABSENT)
            rows.append({"record": name, "value": "", "a": used[0], "b": used[1]})
        else:
            rows += list(_changed_values(name, before[name], after[name]))
    return catalogue, constants


def _changed_values(name: str, before: Mapping[str, Any], after: Mapping[str, Any]) -> Iterator[dict[str, str]]:
    for key in [*before, *(key for key in after if key not in before)]:
        if before.get(key) != after.get(key):
            yield {"record": name, "value": key, "a": shown(before.get(key)), "b": shown(after.get(key))}


def version_rows(a: Saved, b: Saved) -> list[dict[str, str]]:
    """Versions that differ: of the tool, of the JSON, of the constants, and the digest of all catalogue files."""
    pairs = ((name, a.data.get(name), b.data.get(name)) for name in VERSIONS)
    return [{"version": name, "a": shown(before), "b": shown(after)} for name, before, after in pairs if before != after]


def assumption_rows(a: Saved, b: Saved) -> list[dict[str, str]]:
    """Assumptions that differ and are no options of the plan: prices, grids, rates of failure."""
    before, after = (_assumed(answer) for answer in (a, b))
    names = [*before, *(name for name in after if name not in before)]
    return [
        {"assumption": name, "a": shown(before.get(name)), "b": shown(after.get(name))}
        for name in names
        if before.get(name) != after.get(name) and name not in a.held and name not in b.held
    ]


def _assumed(answer: Saved) -> dict[str, Any]:
    return {str(item.get("name")): item.get("value") for item in answer.data["assumptions"] if item.get("origin") != "given"}


def shown(value: Any) -> str:
    """A value as a cell shows it, at most 60 characters."""
    if value is None:
        return _ABSENT
    if isinstance(value, bool):
        return "on" if value else "off"
    if isinstance(value, str):
        return value if len(value) <= 60 else value[:57] + "..."
    value = printed(value)
    return f"{value:,.12g}" if isinstance(value, (int, float)) and abs(value) < 1e15 else quote(value)
