"""Options whose value is words: recomputation, overlap, offloading, operators with adapters."""

from __future__ import annotations

from typing import Any

from ironlaw import units
from ironlaw.errors import QuestionError, UnknownNameError, ValueRangeError
from ironlaw.question.defaults import OFFLOADS, OVERLAPS

RECOMPUTABLE = ("attention", "linear", "half-linear", "elementwise")


def recompute(value: Any, flag: str) -> str:
    """Read none, selective, selective:OPERATORS, full or every:K."""
    name = str(value).strip().lower()
    if name in ("none", "selective", "full"):
        return name
    head, _, tail = name.partition(":")
    if head == "every" and tail.isascii() and tail.isdecimal() and int(tail[:9]) >= 1 and len(tail) < 6:
        return name
    if head == "share":
        share = units.parse(tail, "1", flag)
        if not 0.0 < share <= 1.0:
            raise ValueRangeError(f"{flag} share is {tail}, must be above 0 and at most 1")
        return f"share:{share:.15g}"
    if head == "selective" and tail:
        for operator in tail.split(","):
            if operator not in RECOMPUTABLE:
                raise UnknownNameError(f"operator of {flag} selective", operator, RECOMPUTABLE)
        return name
    raise UnknownNameError(flag, str(value), ["none", "selective", "selective:attention,elementwise", "full", "every:2", "share:0.5"])


def _distinct_names(value: Any, flag: str) -> set[str]:
    """The names in a comma list or a collection."""
    if isinstance(value, str) and not value.strip():
        raise ValueRangeError(f"{flag} is empty: give none, or a value")
    items = value if isinstance(value, (list, tuple, set, frozenset)) else str(value).lower().split(",")
    return {str(i).strip() for i in items if str(i).strip()}


ALWAYS = frozenset(OVERLAPS) - {"ep"}  # ep is a different schedule, which not every plan can run


def overlap(value: Any, flag: str) -> frozenset[str]:
    """Read a comma list of communication that overlaps computation; none; all (without ep, which pairs micro-batches)."""
    names = _distinct_names(value, flag)
    if names == {"none"} or not names:
        return frozenset()
    if names == {"all"}:
        return ALWAYS
    if names & {"all", "none"}:
        raise QuestionError(f"{flag}: all and none do not combine with other names, got {','.join(sorted(names))}")
    for name in names:
        if name not in OVERLAPS:
            raise UnknownNameError(flag, name, [*OVERLAPS, "none", "all"])
    return frozenset(names)


TARGETS = ("attention", "mlp", "all", "qkv", "q", "k", "v", "proj", "fc1", "gate", "up", "fc2", "experts", "router")
SPELLED = {"all-linear": "all", "o": "proj", "down": "fc2"}  # spellings of peft and torchtune


def adapter_targets(value: Any, flag: str) -> str:
    """Read a comma list of operators with an adapter, in Megatron's, peft's or torchtune's spelling."""
    names = []
    for item in str(value).split(","):
        name = item.strip().lower().removeprefix("linear_").removesuffix("_proj")
        name = SPELLED.get(name, name)
        if name not in TARGETS:
            raise UnknownNameError(flag, item.strip(), TARGETS)
        names.append(name)
    return ",".join(dict.fromkeys(names))


def offload(value: Any, flag: str) -> frozenset[str]:
    """Read a comma list of tensors that are stored in host memory; none."""
    names = _distinct_names(value, flag) - {"none"}
    for name in names:
        if name not in OFFLOADS:
            raise UnknownNameError(flag, name, [*OFFLOADS, "none"])
    return frozenset(names)
