"""Names of models as hubs and people write them: an owner, a colon, a version without its hyphen, the suffix of a checkpoint."""

from __future__ import annotations

import re
from collections.abc import Iterator

# what was trained on top of a model, or when: the sizes stay
_CHECKPOINT = re.compile(
    r"-(base|chat|hf|instruct|it|preview|thinking|sft|dpo|pt|v0\.1|2\d(0[1-9]|1[0-2])|(0[1-9]|1[0-2])([0-2]\d|3[01]))$"
)
_QUANTISED = re.compile(r"-(gptq|awq|gguf|ggml|exl2|mlx|bnb|nf4|int4|w4a16|[234]bit|q[2-5](?:-k)?(?:-[sml])?|int8|8bit|q8(?:-0)?)(?=-|$)")
_EIGHT_BITS = ("int8", "8bit", "q8")
_TUNED_VERSION = re.compile(r"-(base|chat|hf|instruct|it)(?=-v\d)")  # before a version, which may have other sizes
_OWNER_IN_NAME = re.compile(r"^(meta|mistralai|google|microsoft|facebook|nvidia|openai)-(?=[a-z])")
_FAMILY = re.compile(r"^([a-z]{3,})(?=\d)")  # llama3 for llama-3


def plain_names(folded: str) -> Iterator[str]:
    """The names that a folded spelling of a model may stand for, the nearest first; nothing that changes a size is dropped.

    >>> list(plain_names("meta-llama/meta-llama-3-70b-instruct"))
    ['meta-llama-3-70b-instruct', 'llama-3-70b-instruct', 'llama-3-70b']
    >>> list(plain_names("llama3:70b"))
    ['llama3-70b', 'llama-3-70b']
    """
    name = folded
    for change in (_without_owner, _without_colon, _without_maker, _with_hyphen, _without_tuning):
        changed = change(name)
        if changed != name:
            name = changed
            yield name
    while (shorter := _CHECKPOINT.sub("", name)) != name:
        name = shorter
        yield name


def _without_owner(name: str) -> str:
    return name.rpartition("/")[2] if name.count("/") == 1 else name


def _without_colon(name: str) -> str:
    return name.removesuffix(":latest").replace(":", "-")


def _without_maker(name: str) -> str:
    return _OWNER_IN_NAME.sub("", name)


def _without_tuning(name: str) -> str:
    return _TUNED_VERSION.sub("", name)


def _with_hyphen(name: str) -> str:
    return _FAMILY.sub(r"\1-", name)


def quantised(folded: str) -> tuple[str, int] | None:
    """A spelling without the suffix that says its weights are quantised, and their bits; None for any other spelling.

    >>> quantised("llama-2-13b-gptq"), quantised("llama-3-8b-bnb-4bit"), quantised("llama-3-8b")
    (('llama-2-13b', 4), ('llama-3-8b', 4), None)
    """
    found = _QUANTISED.search(folded)
    if found is None:
        return None
    said = folded[found.start() :]
    return folded[: found.start()], 8 if any(word in said for word in _EIGHT_BITS) else 4
