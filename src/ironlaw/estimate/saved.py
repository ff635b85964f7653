"""Read an answer that ``ironlaw estimate --json`` or ``ironlaw plan --json`` printed; every value of the file is checked."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from ironlaw import files
from ironlaw.errors import InputError, quote
from ironlaw.estimate.as_data import SCHEMA_VERSION
from ironlaw.question.options import OPTIONS, read_options

LARGEST = 64 << 20  # bytes of a file; an answer takes 60 kB
_LONGEST = 4096  # characters of an option's text
_MOST_TERMS = 100_000
GIVE = "give a file from ironlaw estimate --json"


class Saved(NamedTuple):
    """An answer from a file: its data, and the options that ask it again."""

    name: str  # the file's
    data: Mapping[str, Any]
    given: Mapping[str, Any]  # options that the user gave, read
    plan: Mapping[str, Any]  # options that with them ask for the same plan, read

    @property
    def held(self) -> dict[str, Any]:
        """All options of the answer: those given, and those of its plan."""
        given = {name: value for name, value in self.given.items() if name != "global_batch_tokens"}  # the plan has the sequences
        return {**given, **self.plan}

    @property
    def seconds(self) -> float | None:
        """The step time; None for a plan that cannot run."""
        value: float | None = self.data["step"]["seconds"]
        return value


def read_answer(path: str | Path) -> Saved:
    """Read one answer; of a search its best plan."""
    path = Path(path)
    tree = files.read_json(path, "an answer", LARGEST)
    if isinstance(tree, list):
        if len(tree) != 1:
            raise InputError(f"{path}: a list of {len(tree)} answers: save the one to compare")
        tree = tree[0]
    if isinstance(tree, dict) and isinstance(tree.get("plans"), list):
        if not tree["plans"]:
            raise InputError(f"{path}: the search found no plan, so there is no answer to read")
        tree = tree["plans"][0]
    if not isinstance(tree, dict) or not {"schema_version", "step", "memory", "plan"} <= set(tree):
        raise InputError(f"{path}: not an answer: schema_version, step, memory or plan is missing; {GIVE}")
    if (version := tree["schema_version"]) != SCHEMA_VERSION or isinstance(version, bool):
        raise InputError(f"{path}: schema version {quote(version)}, this version reads {SCHEMA_VERSION}: run ironlaw estimate --json again")
    if "asked" not in tree:
        raise InputError(f"{path}: without the key 'asked', made by an earlier version: run ironlaw estimate --json again")
    _check(tree, str(path))
    asked = tree["asked"]
    return Saved(path.name, tree, _read_options(asked, "given", path.name), _read_options(asked, "plan", path.name))


def _read_options(asked: Mapping[str, Any], key: str, where: str) -> dict[str, Any]:
    """The options of the file, read as flags are; a column of values is no single answer."""
    options = _table(asked, key, where)
    for name, value in options.items():
        option = OPTIONS.get(str(name))
        if isinstance(value, list) and option is not None and option.column:
            raise InputError(f"{where}: {name} is {quote(value)}, must be one value")
        if len(str(value)) > _LONGEST:
            raise InputError(f"{where}: {quote(name)} has more than {_LONGEST} characters")
    return read_options(options, where)


def _check(tree: Mapping[str, Any], where: str) -> None:
    """Refuse a file whose numbers or terms are not what an answer has."""
    for key in ("asked", "records", "plan", "throughput"):
        _table(tree, key, where)
    for key, total in (("step", "seconds"), ("memory", "device")):
        part = _table(tree, key, where)
        _number(part.get(total), f"{where}: {key}.{total}")
        _check_terms(_table(part, "tree", where), f"{where}: {key}.tree")
    for name, values in tree["records"].items():
        if not isinstance(values, dict):
            raise InputError(f"{where}: records.{name} is {quote(values)}, not a table")
    for key in ("throughput", "run"):
        for name, value in (tree.get(key) or {}).items() if isinstance(tree.get(key), (dict, type(None))) else [(key, tree[key])]:
            if name != "peak":
                _number(value, f"{where}: {key}.{name}")
    if not isinstance(tree.get("assumptions"), list) or not all(isinstance(item, dict) for item in tree["assumptions"]):
        raise InputError(f"{where}: assumptions is {quote(tree.get('assumptions'))}, not a list of tables")


def _check_terms(tree: Any, where: str) -> None:
    """Refuse a tree of terms without names, or whose values are not numbers."""
    level, seen = [tree], 0
    while level:
        seen += len(level)
        if seen > _MOST_TERMS:
            raise InputError(f"{where}: more than {_MOST_TERMS:,} terms")
        for node in level:
            if not isinstance(node, dict) or not isinstance(node.get("name"), str) or not isinstance(node.get("parts"), list):
                raise InputError(f"{where}: a term is {quote(node)}, without a name or parts; {GIVE}")
            _number(node.get("value"), f"{where}: {node['name']}")
            _number(node.get("times"), f"{where}: times of {node['name']}")
        level = [part for node in level for part in node["parts"]]


def _table(data: Mapping[str, Any], key: str, where: str) -> dict[str, Any]:
    value = data.get(key)
    if not isinstance(value, dict):
        raise InputError(f"{where}: {key} is {quote(value)}, not a table; {GIVE}")
    return value


def _number(value: Any, where: str) -> None:
    """Refuse a value that is neither a finite number nor null."""
    if value is None:
        return
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not abs(value) < 1e300 or not math.isfinite(float(value)):
        raise InputError(f"{where} is {quote(value)}, not a number")
