"""Match names of kernels against patterns of text and ``*``, which may come from a user's file.

A pattern is not a regular expression: the only special character is ``*``, which ``fnmatch`` matches without backtracking, so no file can
make a match slow.
"""

from __future__ import annotations

from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import cached_property
from pathlib import Path
from typing import Any

from ironlaw.errors import InputError
from ironlaw.measure.read.toml import DATA, read_user_file

OWN = DATA / "communication.toml"
LONGEST_NAME = 4096  # characters of a kernel name that are read; templates make names long, the function is at the front
_MOST_PATTERNS = 2000
_LONGEST_PATTERN = 200
_FEWEST_LETTERS = 3
_DIGITS = "0123456789"
_EXPRESSION = set("^$+?[]{}()|\\")
OPERATIONS = (
    "all_reduce",
    "all_gather",
    "reduce_scatter",
    "all_to_all",
    "broadcast",
    "reduce",
    "gather",
    "scatter",
    "send_recv",
    "barrier",
)
_TEXTS = {"name", "family", "reason", "sample", "source", "operation"}
_FLAGS = {"waits", "communicates"}


@dataclass(frozen=True)
class Pattern:
    """One entry of a file of patterns."""

    name: str
    reason: str
    family: str = "custom"
    operation: str | None = None
    waits: bool = False
    communicates: bool = True
    sample: str = ""
    source: str = ""
    file: str = ""

    @cached_property
    def longest(self) -> str:
        """The longest text between stars: a name that lacks it cannot match, which is quick to check."""
        return max(self.name.split("*"), key=len)

    def fits(self, function: str) -> bool:
        """Whether the pattern matches all of ``function``, or all of it after one of its namespaces.

        >>> Pattern("deep_ep::*", "").fits("primus_turbo::deep_ep::intranode::combine")
        True
        >>> Pattern("deep_ep::*", "").fits("at::native::add")
        False
        """
        if self.longest not in function:
            return False
        parts = function.split("::")
        return any(fnmatchcase("::".join(parts[i:]), self.name) for i in range(len(parts)))


def function_of(name: str) -> str:
    """The function in a kernel name, without return type, template arguments and parameters; mangled names are read too.

    >>> function_of("void vllm::cross_device_reduce_1stage<__nv_bfloat16, 8>(vllm::RankData*, int)")
    'vllm::cross_device_reduce_1stage'
    >>> function_of("_ZN7deep_ep9intranode8dispatchILi8ELi768EEEvP4int4")
    'deep_ep::intranode::dispatch'
    """
    name = name[:LONGEST_NAME]
    if name.startswith("_Z"):
        return _unmangled(name) or name
    for anonymous in ("(anonymous namespace)", "<unnamed>", "{anonymous}", "(anonymous class)"):
        name = name.replace(anonymous, "anonymous")
    letters: list[str] = []
    depth, previous = 0, ""
    for letter in name:
        if letter == "<":
            depth += 1
        elif letter == ">" and previous != "-":
            depth = max(depth - 1, 0)
        elif depth == 0:
            if letter == "(" and letters:
                break
            letters.append(letter)
        previous = letter
    words = "".join(letters).split()
    return words[-1] if words else name


def _unmangled(name: str) -> str:
    """The qualified function name of an Itanium-mangled name, without its arguments."""
    at = 2
    nested = name[at : at + 1] == "N"
    at += nested
    parts: list[str] = []
    while at < len(name) and (name[at] in "LKVr" or name[at] in _DIGITS):
        if name[at] not in _DIGITS:
            at += 1
            continue
        digits = at
        while at < len(name) and name[at] in _DIGITS and at - digits < 5:
            at += 1
        length = int(name[digits:at])
        parts.append(name[at : at + length])
        at += length
        if not nested:
            break
    return "::".join("anonymous" if p.startswith("_GLOBAL__N_") else p for p in parts)


def read_patterns(path: Path) -> tuple[list[Pattern], list[Pattern]]:
    """Read the patterns of kernels and of operators in a file; InputError names a wrong entry."""
    table = read_user_file(path)
    unknown = set(table) - {"pattern", "operator"}
    if unknown:
        raise InputError(f"{path}: unknown table {min(unknown)!r}; write [[pattern]] or [[operator]]")
    patterns = []
    for kind in ("pattern", "operator"):
        entries = table.get(kind, [])
        if not isinstance(entries, list) or len(entries) > _MOST_PATTERNS:
            raise InputError(f"{path}: {kind} must be up to {_MOST_PATTERNS} tables [[{kind}]]")
        patterns.append([_pattern(e, f"{path}: {kind} {i + 1}", path) for i, e in enumerate(entries)])
    if not patterns[0] and not patterns[1]:
        raise InputError(f"{path}: no [[pattern]] or [[operator]]; write one, or leave the file out")
    return patterns[0], patterns[1]


def _pattern(entry: Any, where: str, path: Path) -> Pattern:
    """Read and check one entry of a file of patterns."""
    if not isinstance(entry, dict):
        raise InputError(f"{where}: must be a table")
    unknown = set(entry) - _TEXTS - _FLAGS
    if unknown:
        raise InputError(f"{where}: unknown key {min(unknown)!r}; known: {', '.join(sorted(_TEXTS | _FLAGS))}")
    for key in ("name", "reason"):
        if key not in entry:
            raise InputError(f"{where}: {key} is missing")
    for key, value in entry.items():
        kind = str if key in _TEXTS else bool
        if not isinstance(value, kind):
            raise InputError(f"{where}: {key} is {str(value)[:60]!r}, must be {'text' if kind is str else 'true or false'}")
    name = entry["name"]
    if len(name) > _LONGEST_PATTERN:
        raise InputError(f"{where}: a name of {len(name)} letters; at most {_LONGEST_PATTERN}")
    expression = _EXPRESSION & set(name)
    if expression:
        raise InputError(f"{where}: {name[:60]!r} has {min(expression)!r}: a name is not a regular expression; * stands for any text")
    if sum(letter.isalnum() for letter in name) < _FEWEST_LETTERS:
        raise InputError(f"{where}: {name!r} matches nearly everything; write at least {_FEWEST_LETTERS} letters")
    if entry.get("operation") not in (None, *OPERATIONS):
        raise InputError(f"{where}: operation is {entry['operation'][:60]!r}; one of {', '.join(OPERATIONS)}")
    return Pattern(**entry, file=path.name)
