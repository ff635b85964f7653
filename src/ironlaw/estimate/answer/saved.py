"""Read an answer that ``ironlaw estimate --json`` or ``ironlaw plan --json`` printed; every value of the file is checked."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import msgspec

from ironlaw import files
from ironlaw.earlier import check_version, rename_rates
from ironlaw.errors import InputError, quote
from ironlaw.question.asked import Asked
from ironlaw.question.options import OPTIONS
from ironlaw.question.read import read_options

LARGEST = 64 << 20  # bytes of a file; an answer takes 60 kB
_LONGEST = 4096  # characters of an option's text
_CHOSEN_BY = ("global_batch_tokens", "space")  # options that led to the plan, which has what they led to
_FILES = ("model", "correction", "space")  # options that may name a file
_OPEN = Asked()
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
        return {**{name: value for name, value in self.given.items() if name not in _CHOSEN_BY}, **self.plan}

    def value(self, name: str) -> Any:
        """The value of an option that holds the answer, or the default that the answer took; None where a record decides."""
        if name in self.held:
            return self.held[name]
        if name in ("precision", "schedule"):
            return self.data["plan"].get(name)
        if name == "calibration_version":
            return self.data.get(name)
        return getattr(_OPEN, name, None) or None

    @property
    def seconds(self) -> float | None:
        """The step time; None for a plan that cannot run."""
        value: float | None = self.data["step"]["seconds"]
        return value


def read_answer(path: str | Path) -> Saved:
    """Read one answer; of a search its best plan, or with ``FILE#2`` the second that it lists."""
    path, rank = _split_rank(str(path))
    return answer_of(files.read_saved(path, LARGEST), path, rank)


def answer_of(values: Any, path: Path, rank: int = 0) -> Saved:
    """The answer in the values of a file; ``rank`` picks one of the plans of a search."""
    tree = _pick_plan(values, rank, path)
    if not isinstance(tree, dict) or not {"schema_version", "step", "memory", "plan"} <= set(tree):
        raise InputError(f"{path}: not an answer: schema_version, step, memory or plan is missing; {GIVE}")
    check_version(tree["schema_version"], str(path), ": run ironlaw estimate --json again")
    if "asked" not in tree:
        raise InputError(f"{path}: without the key 'asked', made by an earlier version: run ironlaw estimate --json again")
    _check(tree, str(path))
    tree = {**tree, "throughput": rename_rates(tree["throughput"])}
    asked = tree["asked"]
    name = f"{path.name}#{rank}" if rank else path.name
    given = {option: _beside(path, option, value) for option, value in _read_options(asked, "given", path.name).items()}
    return Saved(name, tree, given, _read_options(asked, "plan", path.name))


def _beside(path: Path, option: str, value: Any) -> Any:
    """A file that an option names: as it is named, or beside the answer where only there is one."""
    if option not in _FILES or not isinstance(value, str) or files.is_there(Path(value)) or not ("/" in value or Path(value).suffix):
        return value
    beside = path.parent / value
    return str(beside) if files.is_there(beside) else value


def _split_rank(path: str) -> tuple[Path, int]:
    """A path, and the rank of the plan that ``#N`` behind it asks for; 0 without one."""
    head, _, rank = path.rpartition("#")
    has_rank = bool(head) and rank.isascii() and rank.isdecimal() and len(rank) < 6 and not files.is_there(Path(path))
    return (Path(head), int(rank)) if has_rank else (Path(path), 0)


def _pick_plan(tree: Any, rank: int, path: Path) -> Any:
    """The answer in a file: the only one of a list, or a plan of a search."""
    if isinstance(tree, list):
        if len(tree) != 1:
            raise InputError(f"{path}: a list of {len(tree)} answers: save the one to read")
        return tree[0]
    plans = tree.get("plans") if isinstance(tree, dict) else None
    if isinstance(plans, list):
        if not plans:
            raise InputError(f"{path}: the search found no plan, so there is no answer to read")
        if rank > len(plans):
            raise InputError(f"{path} lists {len(plans)} plans, #{rank} asks for another")
        return whole_plan(tree, plans[max(rank - 1, 0)])
    if rank:
        raise InputError(f"{path}: a single answer; #{rank} needs a file from ironlaw plan --json")
    return tree


def whole_plan(search: Mapping[str, Any], plan: Any) -> Any:
    """A plan of a search with the values of its records and sources, which the search has once for all plans; older files have them here.

    >>> whole_plan({"records": {"a": 1, "b": 2}}, {"records": ["b"]})
    {'records': {'b': 2}}
    """
    if not isinstance(plan, dict):
        return plan
    shared = {key: search.get(key) for key in ("sources", "records") if isinstance(plan.get(key), list)}
    named = {
        key: {name.partition("#")[0]: values.get(name) for name in plan[key]} for key, values in shared.items() if isinstance(values, dict)
    }
    return {**plan, **named}


def _read_options(asked: Mapping[str, Any], key: str, where: str) -> dict[str, Any]:
    """The options of the file, read as flags are; a column of values is no single answer."""
    options: dict[str, Any] = files.check_shape(asked.get(key), dict[str, Any], where, key, f"; {GIVE}")
    for name, value in options.items():
        option = OPTIONS.get(str(name))
        if isinstance(value, list) and option is not None and option.column:
            raise InputError(f"{where}: {name} is {quote(value)}, must be one value")
        if len(str(value)) > _LONGEST:
            raise InputError(f"{where}: {quote(name)} has more than {_LONGEST} characters")
    return read_options(options, where)


_Number = Annotated[float, msgspec.Meta(ge=-1e300, le=1e300)]


class _Term(msgspec.Struct):
    """A term of a tree."""

    name: str
    parts: list[_Term]
    value: _Number | None
    times: _Number | None = None


class _Step(msgspec.Struct):
    """The step time with its terms."""

    seconds: _Number | None
    tree: _Term


class _Memory(msgspec.Struct):
    """The memory of the device with its terms."""

    device: _Number | None
    tree: _Term


class _Answer(msgspec.Struct):
    """What a saved answer must have; the rest is read where it is needed."""

    asked: dict[str, Any]
    records: dict[str, dict[str, Any]]
    plan: dict[str, Any]
    throughput: dict[str, Any]
    step: _Step
    memory: _Memory
    assumptions: list[dict[str, Any]]
    run: dict[str, Any] | None = None


def _check(tree: Mapping[str, Any], where: str) -> None:
    """Refuse a file whose numbers or terms are not what an answer has."""
    if isinstance(records := tree.get("records"), dict):
        for name, values in records.items():
            files.check_shape(values, dict[str, Any], where, f"records.{name}", f"; {GIVE}")
    files.check_shape(tree, _Answer, where, hint=f"; {GIVE}")
    for key in ("throughput", "run"):
        for name, value in (tree.get(key) or {}).items():
            if name not in ("peak", "bands"):
                files.check_shape(value, _Number | None, where, f"{key}.{name}")
