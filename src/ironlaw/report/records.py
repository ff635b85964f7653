"""Records of the catalogue as plain data: one with all its values and sources, a search over all, and which records name which."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any

from ironlaw.catalog import load
from ironlaw.catalog.records import KINDS
from ironlaw.catalog.schema import Schema
from ironlaw.catalog.sourced import Source, Sourced
from ironlaw.errors import UnknownNameError, nearest_names
from ironlaw.report.cards import card

_KIND_OF = {singular: kind for kind, singular in load.SINGULAR.items()} | {kind: kind for kind in KINDS}


def fields_of(record: Any) -> list[tuple[str, Any]]:
    """The fields of a record without its name and title."""
    return [(name, getattr(record, name)) for name in record.fields if name not in ("name", "title")]


def plain_data(value: Any) -> Any:
    """A record, or a value in it, as data for JSON."""
    if isinstance(value, Sourced):
        return {"value": value.value, "unit": value.unit, "text": value.text, "note": value.note, "source": plain_data(value.source)}
    if isinstance(value, Source):
        return {"key": value.key, "title": value.title, "url": value.url, "read": value.read, "grade": value.grade}
    if isinstance(value, dict):
        return {key: plain_data(item) for key, item in value.items()}
    if isinstance(value, tuple):
        return [plain_data(item) for item in value]
    if isinstance(value, Schema):
        named = {"name": getattr(value, "name", None), "title": getattr(value, "title", None)}
        return named | {key: plain_data(item) for key, item in fields_of(value)}
    return value


def find_records(words: str, folders: tuple[str, ...] = ()) -> dict[str, Any]:
    """The records whose kind, name or title has all the words, by kind; where there is none, the nearest names.

    >>> [hit["name"] for hit in find_records("h100 nvl")["found"]["accelerators"]]
    ['h100-nvl']
    >>> found = find_records("h10o")
    >>> found["found"], found["nearest"][0]["kind"]
    ({}, 'accelerators')
    """
    every = _titles(folders)
    wanted = words.lower().split()
    found = {
        kind: [{"name": name, "title": title} for name, title in titles.items() if _matches(wanted, f"{kind} {name} {title}")]
        for kind, titles in every.items()
    }
    found = {kind: hits for kind, hits in found.items() if hits} if wanted else {}
    return {
        "words": words,
        "records": sum(map(len, every.values())),
        "kinds": {kind: len(titles) for kind, titles in every.items()},
        "found": found,
        "nearest": _nearest(words, every) if wanted and not found else [],
    }


def _matches(wanted: list[str], text: str) -> bool:
    text = text.lower()
    return all(word in text for word in wanted)


def _nearest(words: str, every: Mapping[str, Mapping[str, str]]) -> list[dict[str, str]]:
    """The records whose names are nearest to what was looked for."""
    names = nearest_names(load.fold_name(words), [name for titles in every.values() for name in titles], 6)
    return [{"kind": kind, "name": name, "title": titles[name]} for name in names for kind, titles in every.items() if name in titles]


@cache
def _titles(folders: tuple[str, ...]) -> dict[str, dict[str, str]]:
    """The title of every record by kind and name."""
    return {kind: {name: load.record(kind, name, folders).title for name in load.names(kind, folders)} for kind in KINDS}


def record_data(kind: str, name: str, folders: tuple[str, ...] = ()) -> dict[str, Any]:
    """One record: its values with their sources, its card, who names it, other records of its name, and what an hour of it cost.

    >>> h100 = record_data("accelerators", "h100-sxm")
    >>> h100["card"]["vendor"], h100["names"][0]
    ('NVIDIA', {'field': 'usual_node', 'kind': 'nodes', 'name': 'dgx-h100'})
    >>> "calibration" in h100["same_name"], h100["price_in_use"]["term"]
    (True, 'on-demand')
    """
    if kind not in KINDS:
        raise UnknownNameError("kind of record", kind, KINDS)
    name = load.resolve(kind, name, folders)
    record = plain_data(load.record(kind, name, folders))
    named = _named_by(record, kind, folders)
    prices = load.record("prices", name, folders) if kind in ("accelerators", "prices") and name in load.names("prices", folders) else None
    return {
        "kind": kind,
        "singular": load.SINGULAR[kind],
        "name": name,
        "title": record["title"],
        "record": record,
        "card": card(kind, name, folders),
        "names": [{"field": field, "kind": of, "name": who} for field, (of, who) in dict.fromkeys(named)],
        "used_by": [{"kind": one, "name": who, "field": field} for one, who, field in _references(folders).get((kind, name), ())],
        "same_name": [other for other in KINDS if other != kind and name in load.names(other, folders)],
        "prices": [] if prices is None else plain_data(prices)["price"],
        "price_in_use": None if prices is None else _price_in_use(prices),
        "overrides": load.overrides(kind, name, folders),
    }


def _price_in_use(prices: Any) -> Any:
    """The price that a question takes which gives none."""
    from ironlaw.estimate.bind.money import usual_price

    return plain_data(usual_price(prices))


@cache
def _references(folders: tuple[str, ...]) -> dict[tuple[str, str], list[tuple[str, str, str]]]:
    """Which records name a record, and in which field: kind and name -> (kind, name, field) of those that name it."""
    found: dict[tuple[str, str], list[tuple[str, str, str]]] = {}
    for kind in KINDS:
        for name in load.names(kind, folders):
            named = _named_by(plain_data(load.record(kind, name, folders)), kind, folders)
            for field, target in dict.fromkeys(named):
                found.setdefault(target, []).append((kind, name, field))
    return found


def _named_by(data: Any, kind: str, folders: tuple[str, ...]) -> Iterator[tuple[str, tuple[str, str]]]:
    """The fields of a record that name another: a field is called as the kind that it names, or ``like``, which names its own."""
    for field, value in data.items() if isinstance(data, Mapping) else ():
        if isinstance(value, str) and (of := kind if field == "like" else _KIND_OF.get(field.rpartition("_")[2])):
            if value in _titles(folders)[of]:
                yield field, (of, value)
        elif isinstance(value, list):
            for item in value:
                yield from _named_by(item, kind, folders)
        elif isinstance(value, Mapping):
            yield from _named_by(value, kind, folders)
