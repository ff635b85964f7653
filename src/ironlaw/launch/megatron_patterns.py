"""Megatron's little languages: lists such as ``([0]*3+[1]*12)``, layouts such as ``Et*2|(tt|)*5t|tmL``. Read, never evaluated."""

from __future__ import annotations

import re
from typing import Any

from ironlaw.errors import QuestionError, ValueRangeError

MAX_LENGTH = 10_000  # layers no model has


def whole_number(value: Any, flag: str, least: int = 1) -> int:
    """A whole number of at least ``least``; a text the launch script leaves open is told as that."""
    if value is True:
        raise ValueRangeError(f"{flag} has no value, must be a whole number")
    try:
        number = float("of a switch" if isinstance(value, bool) else value)
    except (TypeError, ValueError, OverflowError):
        hint = ": only a running shell knows it, give its value" if "$" in str(value) or "`" in str(value) else ""
        raise ValueRangeError(f"{flag} is {str(value)!r}, must be a whole number{hint}") from None
    if not least <= number <= 1e15 or number != int(number):
        raise ValueRangeError(f"{flag} is {value}, must be a whole number of at least {least}")
    return int(number)


def routed_layers(text: str, layers: int, flag: str) -> list[bool]:
    """Which layers a frequency N (every Nth, the first among them) or a list of zeros and ones names.

    >>> routed_layers("([0]*1+[1]*2)", 3, "--moe-layer-freq"), routed_layers("2", 4, "--moe-layer-freq")
    ([False, True, True], [True, False, True, False])
    """
    if not re.search(r"[\[,]", text):
        every = whole_number(text, flag)
        return [i % every == 0 for i in range(layers)]
    tokens = re.findall(r"\d+|[\[\](),+*]|\S", text)
    made, at = _sum(tokens, 0, flag, 0)
    if at != len(tokens):
        raise _unread(text, flag)
    if len(made) != layers:
        raise QuestionError(f"{flag} {text} lists {len(made)} layers, the model has {layers}")
    return [v != 0 for v in made]


def _sum(tokens: list[str], at: int, flag: str, depth: int) -> tuple[list[int], int]:
    made: list[int] = []
    while True:
        part, at = _product(tokens, at, flag, depth)
        made += part
        if at >= len(tokens) or tokens[at] != "+":
            return made, at
        at += 1


def _product(tokens: list[str], at: int, flag: str, depth: int) -> tuple[list[int], int]:
    text = "".join(tokens)
    if at >= len(tokens) or depth > 20:
        raise _unread(text, flag)
    if tokens[at] == "(":
        made, at = _sum(tokens, at + 1, flag, depth + 1)
        if at >= len(tokens) or tokens[at] != ")":
            raise _unread(text, flag)
    elif tokens[at] == "[":
        close = tokens.index("]", at) if "]" in tokens[at:] else at
        items = [t for t in tokens[at + 1 : close] if t != ","]
        if close == at or not all(t in ("0", "1") for t in items):
            raise _unread(text, flag)
        made, at = [int(t) for t in items], close
    else:
        raise _unread(text, flag)
    at += 1
    while at + 1 < len(tokens) and tokens[at] == "*" and tokens[at + 1].isdecimal() and len(tokens[at + 1]) < 20:
        times = int(tokens[at + 1])
        if len(made) * times > MAX_LENGTH:
            raise ValueRangeError(f"{flag} lists more than {MAX_LENGTH:,} layers")
        made, at = made * times, at + 2
    return made, at


def _unread(text: str, flag: str) -> QuestionError:
    return QuestionError(f"{flag} {text}: cannot be read as a list such as ([0]*3+[1]*12)")


def layers_by_stage(layout: str, pp: int, layers: int) -> tuple[list[int], int, int | None]:
    """Layers of each pipeline rank, chunks of a rank, and the rank of the further-token layers, of a layout.

    In it E is the embedding, t a layer, m a further-token layer, L the loss.

    Chunks go round the ranks: rank r holds chunks r, r + pp, ...

    >>> layers_by_stage("Et*2|(tt|)*5t|tmL", 4, 14)
    ([4, 4, 3, 3], 2, 3)
    """
    flag = "--pipeline-model-parallel-layout"
    text = re.sub(r"[\s,]", "", layout)
    for _ in range(20):
        opened = re.search(r"\(([^()]*)\)(?:\*(\d+))?", text) or re.search(r"([Etm L|])\*(\d+)", text)
        if not opened:
            break
        made = opened[1] * int(opened[2] or 1) if len(opened[2] or "") < 6 else ""
        if not made or len(text) + len(made) > MAX_LENGTH:
            raise QuestionError(f"{flag} {layout}: cannot be read, or names more than {MAX_LENGTH:,} layers")
        text = text[: opened.start()] + made + text[opened.end() :]
    if not re.fullmatch(r"E[t|]*m*[tm|]*L", text):
        raise QuestionError(f"{flag} {layout}: E must come first, L last, t and m between, stages parted by |")
    chunks = text.split("|")
    if len(chunks) % pp:
        raise QuestionError(f"{flag} {layout}: {len(chunks)} stages are no multiple of pp {pp}")
    if text.count("t") != layers:
        raise QuestionError(f"{flag} {layout}: {text.count('t')} layers, --num-layers is {layers}")
    further = next((at % pp for at, chunk in enumerate(chunks) if "m" in chunk), None)
    return [sum(c.count("t") for c in chunks[rank::pp]) for rank in range(pp)], len(chunks) // pp, further
