"""What earlier versions called things: verbs, options of verbs, chapters that other verbs answered, and keys of saved answers.

This is the one table of old names. Questions are respelled before they are read, saved answers when they are opened.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from ironlaw.errors import ConflictError, InputError, quote

READABLE = (1, 2)  # schema versions of saved answers: 1 has warnings and headlines as bare sentences
VERBS = {"search": "plan", "lessons": "optimize"}  # further names of verbs: search in Python, lessons in an earlier version
_EXCHANGE = {"every": "inner_steps", "fragments": "outer_fragments", "beside": "overlap_steps"}
OPTIONS: dict[str, dict[str, str]] = {  # by verb: an option of an earlier version, and its name today
    "sites": _EXCHANGE,
    "sweep": _EXCHANGE,
    "textbook": {**_EXCHANGE, "three_roof": "formulas"},
    "goodput": {"one_in": "shortage_odds"},
    "elastic": {"notice": "preemption_notice"},
    "money": {"utilisation": "utilization"},
}


class Moved(NamedTuple):
    """A chapter of the textbook that another verb answered in an earlier version."""

    verb: str
    option: str  # that asked for it
    chapter: str = ""  # "": the value of the option names it
    stays: bool = False  # the chapter has the option, too
    off: str = ""  # a value that did not ask for it


_OF_THREE_ROOF = (
    "task", "peak", "bandwidth", "nic", "utilization", "parameters", "kappa", "gamma", "alpha_opt", "c_act", "gradient_bytes", "dp",
    "gpus_per_replica", "roofs",
)  # fmt: skip
MOVED = (
    Moved("compare", "three_roof", "three-roof", stays=True, off="off"),
    *(Moved("compare", name, "three-roof", stays=True) for name in _OF_THREE_ROOF),
    Moved("optimize", "table"),
    Moved("sweep", "mfu", "sweep", stays=True),
    Moved("sites", "model_of", "ten-sites"),
    Moved("scaling", "model_of", "critical-batch"),
)


def first_name(verb: str) -> str:
    """The name of a verb in the help, of a further name too."""
    return VERBS.get(verb, verb)


def respell(verb: str, given: Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
    """A question in the words of today.

    >>> respell("lessons", {"table": "optimizers", "parameters": "7B"})
    ('textbook', {'chapter': 'optimizers', 'parameters': '7B'})
    >>> respell("sites", {"every": 100}), respell("sweep", {"parameters": "7B", "mfu": 0.4})[0]
    (('sites', {'inner_steps': 100}), 'textbook')
    """
    verb = first_name(verb)
    given = {name: value for name, value in given.items() if value is not None and not _is_off(verb, name, value)}
    for moved in MOVED:
        if moved.verb == verb and moved.option in given:
            chapter = moved.chapter or given[moved.option]
            verb, given = "textbook", {"chapter": chapter, **{n: v for n, v in given.items() if n != moved.option or moved.stays}}
            break
    renamed = OPTIONS.get(verb, {})
    for old, new in renamed.items():
        if old in given and new in given:
            raise ConflictError(f"--{old.replace('_', '-')} is --{new.replace('_', '-')}: give it once", option=new)
    return verb, {renamed.get(name, name): value for name, value in given.items()}


def _is_off(verb: str, name: str, value: Any) -> bool:
    """True for an option of an earlier version that did not ask for its chapter."""
    return any(moved.off and (moved.verb, moved.option, moved.off) == (verb, name, value) for moved in MOVED)


def check_version(version: Any, where: str, then: str = "") -> None:
    """Refuse a saved answer of a schema version that this one does not read."""
    if version not in READABLE or isinstance(version, bool):
        raise InputError(f"{where}: schema version {quote(version)}, this version reads {' and '.join(map(str, READABLE))}{then}")


def rename_rates(rates: Mapping[str, Any]) -> dict[str, Any]:
    """The rates of a file by today's names: earlier ones called the full square ``mfu``, and attention under a mask ``mfu_causal``.

    >>> rename_rates({"mfu": 0.54, "mfu_causal": 0.5, "hfu": 0.7})
    {'mfu': 0.5, 'hfu': None, 'mfu_full_square': 0.54, 'hfu_full_square': 0.7}
    """
    if "mfu_causal" not in rates:
        return dict(rates)
    rest = {name: value for name, value in rates.items() if name not in ("mfu_causal", "model_flop_per_second_per_gpu")}
    renamed = {"mfu": rates["mfu_causal"], "hfu": None, "mfu_full_square": rates.get("mfu"), "hfu_full_square": rates.get("hfu")}
    return {**rest, **renamed}
