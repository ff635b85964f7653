"""Options whose value is words: lengths and tokens, recomputation, overlap, offloading, operators with adapters."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, NamedTuple

from ironlaw import units
from ironlaw.errors import QuestionError, UnitError, UnknownNameError, ValueRangeError
from ironlaw.question.defaults import OFFLOADS, OFFLOADS_WITH, OVERLAPS
from ironlaw.question.kinds import kind

_BINARY_LENGTH = re.compile(r"([1-9][0-9]*)\s*([kKM])")


class Interpreted(float):
    """A number that can be read in two ways, with the text that was written and how it was read."""

    written: str
    reading: str

    @classmethod
    def of(cls, number: float, written: str, reading: str) -> Interpreted:
        """The number, with what was written and how it was read."""
        made = cls(number)
        made.written, made.reading = written, reading
        return made


def readings_of(options: Mapping[str, Any]) -> list[tuple[str, str]]:
    """The written text and the chosen reading of every value that can be read in two ways."""
    values = (item for value in options.values() for item in (value if isinstance(value, (list, tuple)) else [value]))
    return [(value.written, value.reading) for value in values if isinstance(value, Interpreted)]


class PerParameter(NamedTuple):
    """Tokens of a run as a multiple of the model's parameters."""

    tokens: float
    written: str


@kind("int", "str", unit="token", least=1, most=units.LARGEST, samples=("4k",))
def length(value: Any, flag: str) -> float:
    """Read a length in tokens. k and M are binary where that makes a power of two, as the names of context lengths have it.

    >>> length("128k", "--seq-len"), length("10k", "--seq-len"), length("1M", "--seq-len")
    (131072.0, 10000.0, 1048576.0)
    """
    number = units.parse_whole(value, flag)
    match = _BINARY_LENGTH.fullmatch(value.strip()) if isinstance(value, str) else None
    if not match or int(match[1]) & (int(match[1]) - 1):
        return number
    tokens = int(match[1]) * 1024 ** (2 if match[2] == "M" else 1)
    return Interpreted.of(units.parse_whole(tokens, flag), f"{flag} {value.strip()}", f"read as {tokens:,} tokens")


@kind("float", "str", unit="token", least=1, most=1e18, metavar="TOKENS", samples=("1M",))
def tokens(value: Any, flag: str) -> float:
    """Read a count of tokens such as 15T."""
    number = units.parse_count(value.strip().removesuffix("tokens") if isinstance(value, str) else value, flag)
    if not 1 <= number <= 1e18:
        raise ValueRangeError(f"{flag} is {units.shorten(value)}, must be at least 1 and at most 1e18")
    return number


@kind("float", "str", unit="token", least=1, most=1e18, metavar="TOKENS", samples=("4M",))
def batch_tokens(value: Any, flag: str) -> float:
    """Read the tokens of a step. k and M are binary where that makes a power of two, as whole sequences of 4,096 or 8,192 have it.

    >>> batch_tokens("4M", "--global-batch-tokens"), batch_tokens("3.2M", "--global-batch-tokens")
    (4194304.0, 3200000.0)
    """
    number = tokens(value, flag)
    match = _BINARY_LENGTH.fullmatch(value.strip()) if isinstance(value, str) else None
    if not match or int(match[1]) & (int(match[1]) - 1):
        return number
    count = int(match[1]) * 1024 ** (2 if match[2] == "M" else 1)
    return Interpreted.of(tokens(count, flag), f"{flag} {value.strip()}", f"read as {count:,} tokens")


@kind("float", "str", unit="token", least=1, most=1e18, metavar="TOKENS", samples=("1T", "20x"))
def run_tokens(value: Any, flag: str) -> float | PerParameter:
    """Read the tokens of a run: a count, or tokens per parameter such as 20x."""
    text = value.strip() if isinstance(value, str) else ""
    if not text.endswith(("x", "X")):
        return tokens(value, flag)
    number = units.bare_number(text[:-1])
    if number is None:
        raise UnitError(f"{flag}: {units.shorten(value)!r} is neither tokens (1.4T) nor tokens per parameter (20x)")
    if not 0.0 < number <= 1e6:
        raise ValueRangeError(f"{flag} is {units.shorten(value)}, must be more than 0 and at most 1e6 tokens per parameter")
    return PerParameter(number, f"{flag} {text}")


RECOMPUTABLE = ("attention", "linear", "half-linear", "elementwise", "up-projection", "mlp", "moe", "shared-experts")
# modules of Megatron Core's --recompute-modules -> the operators they are counted as
RECOMPUTE_MODULES = {"core_attn": "attention", "mlp": "mlp", "moe": "moe", "shared_experts": "shared-experts", "moe_act": "elementwise",
                     "layernorm": "elementwise", "mla_up_proj": "up-projection"}  # fmt: skip


@kind("str", gives="str", metavar="HOW", samples=("full", "selective", "share:0.5"))
def recompute(value: Any, flag: str) -> str:
    """Read none, selective, selective:OPERATORS, full, segments:K, every:K or share:F."""
    name = str(value).strip().lower()
    if name in ("none", "selective", "full"):
        return name
    head, _, tail = name.partition(":")
    if head in ("every", "segments") and tail.isascii() and tail.isdecimal() and int(tail[:9]) >= 1 and len(tail) < 6:
        return name
    if head == "share":
        share = units.parse(tail, "1", flag)
        if not 0.0 < share <= 1.0:
            raise ValueRangeError(f"{flag} share is {tail}, must be above 0 and at most 1")
        return f"share:{share:.15g}"
    if head == "selective" and tail:
        return "selective:" + ",".join(dict.fromkeys(_operator(operator, flag) for operator in tail.split(",")))
    raise UnknownNameError(
        flag, str(value), ["none", "selective", "selective:attention,elementwise", "full", "segments:4", "every:2", "share:0.5"]
    )


def _operator(name: str, flag: str) -> str:
    """The operator that a name of ``selective:`` means: one of ours, or a module of Megatron Core."""
    operator = name if name in RECOMPUTABLE else RECOMPUTE_MODULES.get(name)
    if operator is None:
        raise UnknownNameError(f"operator of {flag} selective", name, (*RECOMPUTABLE, *RECOMPUTE_MODULES))
    return operator


def layers_named(how: str) -> int:
    """The layers that ``every:K`` and ``segments:K`` name; 0 in other kinds of recomputation.

    >>> layers_named("segments:4"), layers_named("full")
    (4, 0)
    """
    head, _, tail = how.partition(":")
    return int(tail) if head in ("every", "segments") else 0


def _distinct_names(value: Any, flag: str) -> set[str]:
    """The names in a comma list or a collection."""
    if isinstance(value, str) and not value.strip():
        raise ValueRangeError(f"{flag} is empty: give none, or a value")
    items = value if isinstance(value, (list, tuple, set, frozenset)) else str(value).lower().split(",")
    return {str(i).strip() for i in items if str(i).strip()}


ALWAYS = frozenset(OVERLAPS) - {"ep"}  # ep is a different schedule, which not every plan can run


@kind("Sequence[str]", "str", gives="frozenset[str]", metavar="LIST", samples=("grad-reduce", "none", "all"))
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


TARGETS = (
    "attention", "mlp", "all", "qkv", "q", "k", "v", "proj", "fc1", "gate", "up", "fc2", "experts", "router", "shared_experts",
    "mla_up", "q_down", "q_up", "kv_down", "kv_up",
)  # fmt: skip
SPELLED = {  # spellings of peft and torchtune, and of DeepSeek's modules
    "all-linear": "all", "o": "proj", "down": "fc2", "q_a": "q_down", "q_b": "q_up", "kv_a": "kv_down", "kv_a_proj_with_mqa": "kv_down",
    "kv_b": "kv_up",
}  # fmt: skip


@kind("str", gives="str", metavar="LIST", samples=("all", "q,v"))
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


@kind("Sequence[str]", "str", gives="frozenset[str]", metavar="LIST", samples=("optimizer", "activations"))
def offload(value: Any, flag: str) -> frozenset[str]:
    """Read a comma list of tensors that are stored in host memory; none. Parameters, and states on NVMe, bring the optimizer."""
    names = _distinct_names(value, flag) - {"none"}
    for name in names:
        if name not in OFFLOADS:
            raise UnknownNameError(flag, name, [*OFFLOADS, "none"])
    return frozenset({*names, *(OFFLOADS_WITH[name] for name in names if name in OFFLOADS_WITH)})
