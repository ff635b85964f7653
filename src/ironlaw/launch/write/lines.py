"""The lines of a configuration: the keys of a framework's table with the values of a plan's facts, and what no key says."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from ironlaw.launch.write.tables import Key, Table

ANY = "any"


class Line(NamedTuple):
    """A setting: its key, its value, why it has this value, and the fact that it says."""

    key: str
    value: Any
    why: str
    of: str = ""
    part: str = "file"


class Written(NamedTuple):
    """The lines of a configuration, and what it cannot say."""

    lines: tuple[Line, ...]
    unsaid: tuple[str, ...]


def lines_of(table: Table, keys: Iterable[Key], facts: Mapping[str, Any], needed: Mapping[str, Any]) -> Written:
    """The lines that a table writes for facts; a ``needed`` one that has no line is named, as is a value without a spelling."""
    lines: list[Line] = []
    unsaid: list[str] = []
    said: set[str] = set()
    for key in keys:
        if not applies(key.when, facts):
            continue
        value, error = _value_of(key, facts)
        if error or value is not None:
            said.update((key.of, *key.says))
        if error:
            unsaid.append(error)
        elif value not in (None, ""):
            lines.append(Line(key.key, value, reason(key.why, facts), key.of, key.part))
    for name, value in needed.items():
        usual = table.always.get(name, ())
        if name in said or value in usual or ANY in usual:
            continue
        where = f" (it has {' or '.join(map(shown, usual))} alone)" if usual else ""
        unsaid.append(f"{title_of(name)} {shown(value)}{where}")
    return Written(tuple(lines), tuple(dict.fromkeys(unsaid)))


def applies(when: Mapping[str, Any], facts: Mapping[str, Any]) -> bool:
    """True where every fact of a condition has one of its values.

    ``">1"`` asks for more than 1, ``"any"`` for a value, ``"none"`` for none.

    >>> applies({"pp": ">1"}, {"pp": 4}), applies({"zero": [2, 3]}, {"zero": 1}), applies({"hub": "any"}, {"hub": None})
    (True, False, False)
    """
    return all(_meets(facts.get(name), wanted) for name, wanted in when.items())


def _meets(value: Any, wanted: Any) -> bool:
    if wanted == ">1":
        return isinstance(value, (int, float)) and value > 1
    if wanted in ("any", "none"):
        return bool(wanted == "none") == (value in (None, ""))
    return value in wanted if isinstance(wanted, list) else bool(value == wanted)


def _value_of(key: Key, facts: Mapping[str, Any]) -> tuple[Any, str]:
    """What a key is given; or why it cannot have a value."""
    value = facts.get(key.of) if key.value is None else key.value
    if isinstance(value, str) and "{" in value:
        return reason(value, facts), ""
    if key.map is None or value is None:
        return (None if value is None else _formed(key.form, value)), ""
    if (spelled := key.map.get(shown(value), key.map.get("*"))) is None:
        return None, f"{title_of(key.of)} {shown(value)} ({key.key} has {', '.join(key.map)})"
    return (value if spelled == "=" else spelled), ""


def _formed(form: str, value: Any) -> Any:
    """A value in the form that a key wants.

    >>> _formed("list", "core_attn mlp"), _formed("number", "4"), _formed("number", "0.5")
    ('[core_attn,mlp]', 4, 0.5)
    """
    if form == "list":
        return f"[{','.join(str(value).split())}]"
    if form == "number" and isinstance(value, str):
        return float(value) if "." in value else int(value)
    return list(value) if isinstance(value, tuple) else value


def reason(text: str, facts: Mapping[str, Any]) -> str:
    """A text with the facts in its braces; a dot of a name is an underscore there.

    >>> reason("over {tp} ranks", {"tp": 4.0})
    'over 4 ranks'
    """
    return text.format_map({name.replace(".", "_"): shown(value) for name, value in facts.items()}) if "{" in text else text


def shown(value: Any) -> str:
    """A value in words.

    >>> shown(True), shown(4.0), shown(("a", "b"))
    ('true', '4', 'a b')
    """
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (int, float)):
        return str(value) if isinstance(value, int) else f"{value:.12g}"
    return " ".join(map(str, value)) if isinstance(value, (list, tuple)) else str(value)


def title_of(fact: str) -> str:
    """A fact as a person names it.

    >>> title_of("overlap.tp"), title_of("recompute_kind"), title_of("lora_rank")
    ('overlap of tp', 'recompute', '--lora-rank')
    """
    head, dot, rest = fact.partition(".")
    if fact.startswith("--"):
        return f"Megatron-LM's {fact}"
    if dot:
        return {"overlap": f"overlap of {rest}", "offload": f"offloading of {rest}"}.get(head, f"{head} {rest}")
    named = {
        "model": "the model",
        "recompute_kind": "recompute",
        "recompute_parts": "recompute of",
        "stages": "pipeline stages",
        "sharded": "sharding of states",
    }
    return named.get(fact, f"--{fact.replace('_', '-')}")
