"""``ironlaw catalog check``: every record read in full, every number with a source, no values that contradict each other."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

from ironlaw.catalog import load
from ironlaw.catalog.model import Model
from ironlaw.catalog.records import KINDS, Accelerator, Calibration, Node, PriceList, Site
from ironlaw.errors import IronlawError

_DATE = re.compile(r"^\d{4}-\d{2}-\d{2}$")
RECALLED = "recalled"  # a source written from memory of the document: allowed, and counted as unverified


def audit(folders: tuple[str, ...] = ()) -> list[str]:
    """Every problem of every record, one line each: file, key, what is wrong."""
    problems: list[str] = []
    try:
        load.aliases(folders)
    except IronlawError as error:
        return [str(error)]
    for root in load.roots(folders):
        for kind in KINDS:
            for path in sorted((root / kind).glob("*.toml")):
                problems += audit_file(kind, path, folders)
        for path in sorted(root.glob("*/*.toml")):
            if path.parent.name not in KINDS:
                problems.append(f"{path}: no kind of record is called {path.parent.name!r}; kinds are {', '.join(KINDS)}")
    return problems


def audit_file(kind: str, path: Path, folders: tuple[str, ...] = ()) -> list[str]:
    """The problems of one file."""
    try:
        table = tomllib.loads(path.read_text(encoding="utf-8"))
        record = load.decode(kind, path.stem, table, str(path))
    except OSError as error:
        return [f"{path}: cannot be read: {error.strerror}"]
    except (IronlawError, tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        return [str(error) if str(path) in str(error) else f"{path}: {error}"]
    found = [*_sources(table), *_numbers(table)]
    check = _CHECKS.get(kind)
    if check is not None:
        found += check(record, folders)
    return [f"{path}: {problem}" for problem in found]


def unverified(folders: tuple[str, ...] = ()) -> list[str]:
    """``file: source`` of every source that was written from memory and not yet read again."""
    return [
        f"{path}: {key}"
        for root in load.roots(folders)
        for path in sorted(root.glob("*/*.toml"))
        if path.is_file()
        for key, source in tomllib.loads(path.read_text(encoding="utf-8")).get("sources", {}).items()
        if str(source.get("read")) == RECALLED
    ]


def _sources(table: dict[str, Any]) -> Iterator[str]:
    """Sources that say too little, and sources nothing uses."""
    text = str({k: v for k, v in table.items() if k != "sources"})
    for key, source in table.get("sources", {}).items():
        if not str(source.get("url", "")).startswith(("http://", "https://")):
            yield f"sources.{key}.url is {source.get('url')!r}, expected a URL"
        if not (_DATE.match(str(source.get("read"))) or str(source.get("read")) == RECALLED):
            yield f"sources.{key}.read is {source.get('read')!r}, expected the ISO date it was read (or {RECALLED!r})"
        if not str(source.get("title", "")).strip():
            yield f"sources.{key}.title is empty"
        if f"'source': '{key}'" not in text:
            yield f"sources.{key} is used by no number"


def _numbers(table: dict[str, Any], at: str = "", covered: bool = False) -> Iterator[str]:
    """Numbers no source covers: neither inside ``{{ value, source }}`` nor in a table with a source of its own."""
    covered = covered or isinstance(table.get("source"), str)
    for key, item in table.items():
        if key == "sources" and not at:
            continue
        if isinstance(item, dict):
            yield from _numbers(item, f"{at}{key}.", covered)
        elif isinstance(item, list):
            for i, part in enumerate(item):
                if isinstance(part, dict):
                    yield from _numbers(part, f"{at}{key}[{i}].", covered)
                elif _is_number(part) and not covered:
                    yield f"{at}{key}[{i}] = {part!r} has no source"
        elif _is_number(item) and not covered:
            yield f"{at}{key} = {item!r} has no source"


def _is_number(item: Any) -> bool:
    return isinstance(item, (int, float)) and not isinstance(item, bool)


def _accelerator(record: Accelerator, folders: tuple[str, ...]) -> Iterator[str]:
    for precision, sparse in record.peak_sparse.items():
        dense = record.peak.get(precision)
        if dense is not None and dense.value > 1.01 * sparse.value / 2.0:
            yield f"peak.{precision} {dense.text} is more than half of the sparse {sparse.text}: a sparse figure used as dense?"
    if record.memory_bus_width is not None and record.memory_data_rate is not None:
        implied = record.memory_bus_width.value * record.memory_data_rate.value
        if abs(implied / record.hbm_bandwidth.value - 1.0) > 0.05:
            yield f"hbm_bandwidth {record.hbm_bandwidth.text} is not bus width times data rate ({implied / 1e9:.0f} GB/s)"
    if record.memory_usable is not None and record.memory_usable.value > record.memory_capacity.value * 1.0001:
        yield f"memory_usable {record.memory_usable.text} exceeds memory_capacity {record.memory_capacity.text}"
    order = ("fp32", "tf32", "bf16", "fp8", "nvfp4")
    peaks = [(p, record.peak[p].value) for p in order if p in record.peak]
    for (_, a), (fast, b) in pairwise(peaks):
        if b < a:
            yield f"peak.{fast} is below the peak of a wider precision"
    yield from _refers(record.usual_node, "nodes", "usual_node", folders)
    yield from _refers(record.calibration, "calibration", "calibration", folders)


def _node(record: Node, folders: tuple[str, ...]) -> Iterator[str]:
    yield from _refers(record.usual_fabric, "fabrics", "usual_fabric", folders)
    if record.collective_calibration:
        yield from _refers(record.collective_calibration, "calibration", "collective_calibration", folders)
    if record.scale_up_size.value < 1 or record.accelerators.value < 1:
        yield "accelerators and scale_up_size must be at least 1"


def _model(record: Model, folders: tuple[str, ...]) -> Iterator[str]:
    del folders
    for name in ("hidden_size", "num_hidden_layers", "num_attention_heads", "num_key_value_heads", "head_dim", "vocab_size"):
        if getattr(record, name) < 1:
            yield f"{name} is {getattr(record, name)}, must be at least 1"
            return
    if record.num_attention_heads % record.num_key_value_heads:
        yield "num_key_value_heads does not divide num_attention_heads"
    if record.sliding_window_layers > record.num_hidden_layers:
        yield "sliding_window_layers exceeds num_hidden_layers"


def _prices(record: PriceList, folders: tuple[str, ...]) -> Iterator[str]:
    yield from _refers(record.name, "accelerators", "file name", folders)
    dates = [p.date for p in record.price]
    if dates != sorted(dates):
        yield "prices are not in order of date (append, never edit)"
    for price in record.price:
        if not _DATE.match(price.date):
            yield f"price date {price.date!r} is no ISO date"
        if not price.region or not price.currency:
            yield f"price of {price.provider} on {price.date} lacks region or currency"


def _site(record: Site, folders: tuple[str, ...]) -> Iterator[str]:
    if not (-90.0 <= record.latitude <= 90.0 and -180.0 <= record.longitude <= 180.0):
        yield f"latitude {record.latitude}, longitude {record.longitude} is no place on Earth"
    if record.power is not None and record.power.value <= 0.0:
        yield "power is 0: leave it out where it is not known"
    yield from _refers(record.grid, "grids", "grid", folders)


def _calibration(record: Calibration, folders: tuple[str, ...]) -> Iterator[str]:
    if record.grade not in ("measured", "prior"):
        yield f"grade {record.grade!r} is neither measured nor prior"
    if record.device:
        yield from _refers(record.device, "accelerators", "device", folders)
    for part, table in (("gemm", record.gemm), ("experts", record.experts)):
        for precision, constants in table.items():
            if not 0.0 < constants.efficiency.value <= 1.0:
                yield f"{part}.{precision}.efficiency {constants.efficiency.text} is above the roof"
    for precision in sorted(record.experts.keys() - record.gemm.keys()):
        yield f"experts.{precision} has no gemm.{precision} beside it"


def _refers(name: str, kind: str, key: str, folders: tuple[str, ...]) -> Iterator[str]:
    try:
        load.resolve(kind, name, folders)
    except IronlawError as error:
        yield f"{key}: {error}"


_CHECKS: dict[str, Callable[[Any, tuple[str, ...]], Iterator[str]]] = {
    "accelerators": _accelerator,
    "nodes": _node,
    "models": _model,
    "prices": _prices,
    "sites": _site,
    "calibration": _calibration,
}
