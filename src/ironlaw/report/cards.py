"""A record in a few words, for a list to pick from: what it is, its size and rates, and how well its values are known."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

from ironlaw.catalog import load
from ironlaw.catalog.sourced import GRADES, Source, Sourced
from ironlaw.estimate.layer.counts import active_parameters, total_parameters


def cards(kind: str, folders: tuple[str, ...] = ()) -> list[dict[str, Any]]:
    """A card for every record of a kind, in the order of their names."""
    return [card(kind, name, folders) for name in load.names(kind, folders)]


def card(kind: str, name: str, folders: tuple[str, ...] = ()) -> dict[str, Any]:
    """Name, title, how many of its values have which grade, best grade first; and what tells records of the kind apart.

    >>> h100 = card("accelerators", "h100-sxm")
    >>> h100["vendor"], h100["kernels"], h100["memory_bytes"] / 2**30
    ('NVIDIA', 'measured', 80.0)
    """
    record = load.record(kind, name, folders)
    graded = Counter(grade for value in vars(record).values() for grade in grades_in(value))
    more = OF_KIND.get(kind, lambda _record, _folders: {})(record, folders)
    return {"name": name, "title": record.title, "grades": {grade: graded[grade] for grade in GRADES if grade in graded}, **more}


def grades_in(value: Any) -> Iterator[str]:
    """The grades of all values below a value of a record."""
    if isinstance(value, Sourced):
        value = value.source
    if isinstance(value, Source):
        yield value.grade
    elif isinstance(value, Mapping):
        for item in value.values():
            yield from grades_in(item)
    elif isinstance(value, tuple):
        for item in value:
            yield from grades_in(item)
    elif hasattr(value, "fields") and hasattr(value, "__dict__"):
        for item in vars(value).values():
            yield from grades_in(item)


def _accelerator(record: Any, folders: tuple[str, ...]) -> dict[str, Any]:
    """Memory [B], its bandwidth [B/s], dense peaks [FLOP/s] by format, power [W], and whether its kernels were measured."""
    return {
        "vendor": record.vendor,
        "architecture": record.architecture,
        "memory_bytes": record.memory_capacity.value,
        "hbm_bandwidth": record.hbm_bandwidth.value,
        "peak": {name: peak.value for name, peak in record.peak.items()},
        "power": record.tdp.value,
        "usual_node": record.usual_node,
        "kernels": load.record("calibration", record.calibration, folders).grade,
    }


def _model(record: Any, folders: tuple[str, ...]) -> dict[str, Any]:
    """Parameters, all and those that a token visits, and the sizes that a question needs."""
    del folders
    return {
        "family": record.family,
        "parameters": int(total_parameters(record)),
        "active_parameters": int(active_parameters(record)),
        "layers": record.num_hidden_layers,
        "hidden_size": record.hidden_size,
        "experts": record.num_experts,
        "seq_len": record.max_position_embeddings,
    }


OF_KIND = {"accelerators": _accelerator, "models": _model}  # what else a card of a kind has
