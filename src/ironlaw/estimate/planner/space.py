"""The axes that a search varies: read from a space file, then narrowed by what the question fixes or forbids."""

from __future__ import annotations

import operator
import os
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

from ironlaw import units
from ironlaw.errors import QuestionError, UnknownNameError, ValueRangeError
from ironlaw.files import is_there, read_toml
from ironlaw.question.defaults import CP_METHODS, DISPATCHERS, FEWEST_CONTEXT_TOKENS, OFFLOADS, OVERLAPS, USUAL_CONTEXT_RANKS
from ironlaw.question.options import OPTIONS
from ironlaw.question.readers import switch

ENDS = ("first_stage_layers", "last_stage_layers")
MESH = ("tp", "pp", "vpp", "cp", "ep", "etp", "dp_replicate", "dp_shard", "micro_batch_size", *ENDS)
SWITCHES = ("sp", *(f"overlap_{name.replace('-', '_')}" for name in OVERLAPS), *(f"offload_{name}" for name in OFFLOADS))
CHOICES = ("recompute", "zero", *SWITCHES)
# each value needs another job or another cluster
VARIANTS = (
    "schedule", "precision", "framework", "count_embedding", "cp_method", "moe_dispatcher", "attention_kernel", "cuda_graphs",
    "gradient_dtype", "weights_dtype", "node", "fabric",
)  # fmt: skip
AXES = (*MESH, *CHOICES, *VARIANTS)
WORDS = {  # that a space file may give instead of values, with the values they stand for
    ("pp", "all"): "every divisor",
    ("dp_replicate", "all"): "every divisor",
    ("dp_shard", "all"): "every divisor",
    ("micro_batch_size", "powers of two"): "1, 2, 4, and on up to the sequences of a rank",
    ("cp", "by length"): "1, 2, 4, 8, and on while a rank keeps 1,024 tokens of a sequence",
    ("last_stage_layers", "balanced"): "even, and the splits with the shortest slowest stage (first stage too)",
    ("cp_method", "by length"): "ring; from sequences of 16,384 tokens on all of them",
    ("schedule", "all"): "every schedule that may be best",
    ("moe_dispatcher", "all"): "every dispatcher",
}
_MOST_VALUES = 1000


@dataclass(frozen=True)
class Rule:
    """One ``AXIS<VALUE`` of --forbid: the search leaves out plans for which it is true."""

    axis: str
    compare: str
    value: Any

    def __str__(self) -> str:
        return f"{self.axis}{self.compare}{self.value if isinstance(self.value, str) else format(self.value, 'g')}"

    def holds(self, column: Any) -> Any:
        """True where a plan is forbidden."""
        return _COMPARE[self.compare](column, self.value)


_COMPARE = {"=": operator.eq, "<": operator.lt, ">": operator.gt, "<=": operator.le, ">=": operator.ge}


@dataclass(frozen=True)
class Space:
    """Values by axis, or a word of WORDS; an axis that is missing has the framework's default."""

    title: str
    values: Mapping[str, Any]
    forbidden: tuple[Rule, ...] = ()
    given: frozenset[str] = frozenset()  # axes that the question fixes
    own: bool = False  # a file of the user's, whose values are tried as they are
    methods: tuple[str, ...] = CP_METHODS  # of context parallelism, that the stack has

    def of(self, axis: str) -> Any:
        """The values of an axis to try, the word for them, or None where it is not varied."""
        return self.values.get(axis)

    def fixed(self, axis: str) -> float | None:
        """The only value of a mesh axis, 1 where the space does not vary it; None where it has several."""
        values = self.values.get(axis, (1.0,))
        return float(values[0]) if isinstance(values, tuple) and len(values) == 1 else None

    def varies(self, axis: str) -> bool:
        """True where there is more than one value of an axis to try."""
        values = self.values.get(axis, ())
        return isinstance(values, str) or len(values) > 1

    def only(self, axes: Collection[str]) -> Space:
        """This space with the values of some axes; the others have their defaults."""
        return replace(self, values={axis: values for axis, values in self.values.items() if axis in axes})

    def without(self, axes: Collection[str]) -> Space:
        """This space without some axes that the question leaves open; they have their defaults."""
        return replace(self, values={axis: values for axis, values in self.values.items() if axis not in axes or axis in self.given})

    def narrowed(self, fixed: Mapping[str, Any], forbidden: tuple[Rule, ...] = ()) -> Space:
        """This space with some axes fixed and some values forbidden."""
        values = {**self.values, **{axis: (value,) for axis, value in fixed.items()}}
        for rule in forbidden:
            if rule.axis not in MESH and rule.axis not in values:
                raise QuestionError(f"--forbid {rule}: {rule.axis} is not varied in this space: use --fix, or list its values in the space")
            if isinstance(values.get(rule.axis), tuple):
                allowed = tuple(v for v in values[rule.axis] if not rule.holds(v))
                if not allowed:
                    raise QuestionError(f"--forbid {rule} leaves no value of {rule.axis} to try")
                values[rule.axis] = allowed
        return replace(self, values=values, forbidden=(*self.forbidden, *forbidden), given=self.given | fixed.keys())


def read_space(path: str | None) -> Space:
    """The space of a TOML file, or the one that ships, which is read once."""
    return _shipped_space() if path is None else _read_space(path)


@cache
def _shipped_space() -> Space:
    """The space that ships."""
    return _read_space(None)


def _read_space(path: str | None) -> Space:
    file = Path(os.path.expanduser(path)) if path else Path(__file__).parent / "spaces" / "default.toml"
    if path and "/" not in path and not file.suffix and not is_there(file):
        file = Path(__file__).parent / "spaces" / f"{path}.toml"
    table = read_toml(file, "a space file")
    title = table.pop("title", file.stem)
    return Space(
        str(title), {axis: _check_values(axis, value, file.name) for axis, value in table.items()}, own=path not in (None, "default")
    )


def _check_values(axis: str, value: Any, where: str) -> Any:
    """Check the values of one axis of a file."""
    if axis not in AXES:
        raise UnknownNameError(f"axis of {where}", axis, AXES)
    if isinstance(value, str) and any(value == word for _, word in WORDS):
        if (axis, value) not in WORDS:
            axes = ", ".join(name for name, word in WORDS if word == value)
            raise ValueRangeError(f"{axis} in {where} is {value}: only {axes} can be {value}; list the values of {axis}")
        return _listed(axis, value)
    items = value if isinstance(value, list) else [value]
    if not 0 < len(items) <= _MOST_VALUES:
        raise ValueRangeError(f"{axis} in {where} has {len(items)} values, must have 1 to {_MOST_VALUES}")
    return tuple(dict.fromkeys(axis_value(axis, item, f"{axis} in {where}") for item in items))


def _listed(axis: str, word: str) -> Any:
    """The values that a word stands for where a table has them; the word itself for an axis whose values depend on the row."""
    if axis == "schedule":
        from ironlaw.estimate.pipeline.schedules import searched  # brings numpy, which a help text shall not

        return searched()
    return DISPATCHERS if axis == "moe_dispatcher" else word


def context_ranks(seq_len: float, gpus: float) -> tuple[float, ...]:
    """Context ranks to try: up to 8 for any sequence, and more where every rank keeps 1,024 tokens.

    A small batch may need up to 8 ranks. With fewer than 1,024 tokens on a rank a block of keys and values takes longer to send than
    to attend to, even on scale-up links, and a matrix product has too few rows to fill a device.

    >>> context_ranks(8192, 1024), context_ranks(131072, 64)
    ((1.0, 2.0, 4.0, 8.0), (1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0))
    """
    tried, ranks = [], 1.0
    while ranks <= gpus and (ranks <= USUAL_CONTEXT_RANKS or seq_len / ranks >= FEWEST_CONTEXT_TOKENS):
        tried.append(ranks)
        ranks *= 2.0
    return tuple(tried)


def axis_value(axis: str, value: Any, flag: str) -> Any:
    """Read one value of an axis by its option: numbers and switches as floats, the rest as names."""
    if axis in SWITCHES:
        return float(switch(value, flag))
    read = OPTIONS[axis].read(value, flag)
    return read if isinstance(read, (str, bool)) else float(read)


def read_fixed(text: str) -> dict[str, Any]:
    """Read ``tp=8,recompute=none`` as values by axis."""
    fixed: dict[str, Any] = {}
    for axis, compare, value in _parse_clauses(text, "--fix"):
        if compare != "=":
            raise QuestionError(f"--fix {axis}{compare}{value}: give AXIS=VALUE (--forbid takes comparisons)")
        if axis in fixed:
            raise QuestionError(f"--fix gives {axis} twice")
        fixed[axis] = axis_value(axis, value, f"--fix {axis}")
    return fixed


def read_forbidden(text: str) -> tuple[Rule, ...]:
    """Read ``tp>8,recompute=full`` as rules."""
    rules = []
    for axis, compare, value in _parse_clauses(text, "--forbid"):
        if compare != "=" and axis in ("recompute", *VARIANTS):
            raise QuestionError(f"--forbid {axis}{compare}{value}: the values of {axis} are names; compare them with =")
        bound = axis_value(axis, value, f"--forbid {axis}") if compare == "=" else units.parse_count(value, f"--forbid {axis}")
        rules.append(Rule(axis, compare, bound))
    return tuple(rules)


_CLAUSE = re.compile(r"^\s*([a-z_-]+)\s*(<=|>=|=|<|>)\s*(\S+)\s*$")


def _parse_clauses(text: str, flag: str) -> list[tuple[str, str, str]]:
    """Split ``tp=8,zero>1`` into axis, comparison and value."""
    clauses = []
    for item in str(text).split(","):
        match = _CLAUSE.match(item)
        if not match:
            raise QuestionError(f"{flag}: {item.strip()!r} is not AXIS=VALUE, such as tp=8")
        axis = match[1].replace("-", "_")
        if axis not in AXES:
            raise UnknownNameError(f"axis of {flag}", axis, AXES)
        clauses.append((axis, match[2], match[3]))
    return clauses
