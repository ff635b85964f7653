"""Check every record of the catalogue: schema, a source for every number, values that contradict each other."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from datetime import date
from itertools import pairwise
from pathlib import Path
from typing import Any

from ironlaw.catalog import clouds, load
from ironlaw.catalog.model import Model
from ironlaw.catalog.optimizer import Optimizer
from ironlaw.catalog.records import KINDS, OPERATIONS, SLICE, Accelerator, Calibration, Grid, Node, PriceList, Recipe, Site
from ironlaw.catalog.sourced import Source
from ironlaw.errors import IronlawError

_DATE = re.compile(r"^\d{4}-\d{2}-\d{2}$")
GRADIENT_IN, WEIGHT_OUT = 2.0, 2.0  # bytes of an optimizer's traffic that are no states
RECALLED = "recalled"  # ``read`` of a source cited from memory: allowed, and counted as unverified


def audit(folders: tuple[str, ...] = ()) -> list[str]:
    """All problems of all records, one line each: file, key, what is wrong."""
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
                problems.append(f"{path}: unknown kind of record {path.parent.name!r}; known: {', '.join(KINDS)}")
    return problems


def audit_file(kind: str, path: Path, folders: tuple[str, ...] = ()) -> list[str]:
    """The problems of one file."""
    try:
        table = load.read_file(path)
        record = load.decode(kind, path.stem, load.completed(kind, table, str(path), folders), str(path))
    except IronlawError as error:
        return [str(error) if str(path) in str(error) else f"{path}: {error}"]
    problems = [*_check_sources(table), *_find_unsourced(table)]
    if kind in _CHECKS:
        problems += _CHECKS[kind](record, folders)
    return [f"{path}: {problem}" for problem in problems]


def unverified(folders: tuple[str, ...] = ()) -> list[str]:
    """``file: source`` of every source that is cited from memory, in the files that ``audit`` can read."""
    return [
        f"{path}: {key}"
        for root in load.roots(folders)
        for path in sorted(root.glob("*/*.toml"))
        for key, source in _declared_sources(path).items()
        if source.read == RECALLED
    ]


def stale_prices(older_than: float, today: str, folders: tuple[str, ...] = ()) -> list[str]:
    """A line for the prices of one file, provider and date that are the newest of their region and term, and older than so many days."""
    found: dict[tuple[Path, str, str], list[str]] = {}
    for name in load.names("prices", folders):
        path = load.path_of("prices", name, folders)
        newest = {(p.provider, p.region, p.term): p for p in sorted(load.record("prices", name, folders).price, key=lambda p: p.date)}
        for price in newest.values():
            if _age(price.date, today) > older_than:
                found.setdefault((path, price.provider, price.date), []).append(f"{price.term} {price.per_hour.text}")
    return [
        f"{_shown(path)}: {provider} on {day}, {_age(day, today)} days ago: {', '.join(prices)}"
        for (path, provider, day), prices in found.items()
    ]


def _shown(path: Path) -> Path:
    """A file of the shipped catalogue from its folder on, any other as it is."""
    return path.relative_to(load.SHIPPED) if path.is_relative_to(load.SHIPPED) else path


def _age(day: str, today: str) -> int:
    """Days from an ISO date to another; 0 where it is no date."""
    return (date.fromisoformat(today) - date.fromisoformat(day)).days if _DATE.match(day) else 0


def _declared_sources(path: Path) -> dict[str, Source]:
    """The sources that a file declares; none where the file cannot be read."""
    try:
        return load.read_sources(load.read_file(path), str(path))
    except IronlawError:
        return {}


def _check_sources(table: dict[str, Any]) -> Iterator[str]:
    """Incomplete sources, and sources that no number uses."""
    text = str({k: v for k, v in table.items() if k != "sources"})
    for key, source in table.get("sources", {}).items():
        if not str(source.get("url", "")).startswith(("http://", "https://")):
            yield f"sources.{key}.url is {source.get('url')!r}, expected a URL"
        if not (_DATE.match(str(source.get("read"))) or str(source.get("read")) == RECALLED):
            yield f"sources.{key}.read is {source.get('read')!r}, expected the ISO date it was read (or {RECALLED!r})"
        if not str(source.get("title", "")).strip():
            yield f"sources.{key}.title is empty"
        if f"'source': '{key}'" not in text:
            yield f"sources.{key} is not used by any number"


def _find_unsourced(table: dict[str, Any], at: str = "", covered: bool = False) -> Iterator[str]:
    """Numbers without a source: neither in ``{ value, source }`` nor in a table with a ``source``."""
    covered = covered or isinstance(table.get("source"), str)
    for key, item in table.items():
        if key == "sources" and not at:
            continue
        if isinstance(item, dict):
            yield from _find_unsourced(item, f"{at}{key}.", covered)
        elif isinstance(item, list):
            for i, part in enumerate(item):
                if isinstance(part, dict):
                    yield from _find_unsourced(part, f"{at}{key}[{i}].", covered)
                elif _is_number(part) and not covered:
                    yield f"{at}{key}[{i}] = {part!r} has no source"
        elif _is_number(item) and not covered:
            yield f"{at}{key} = {item!r} has no source"


def _is_number(item: Any) -> bool:
    return isinstance(item, (int, float)) and not isinstance(item, bool)


def _check_accelerator(record: Accelerator, folders: tuple[str, ...]) -> Iterator[str]:
    """Find values of one accelerator that contradict each other, and references to records that do not exist."""
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
    order = ("fp32", "tf32", "bf16", "fp8", "fp6", "mxfp4", "nvfp4")
    peaks = [(p, record.peak[p].value) for p in order if p in record.peak]
    for (_, a), (fast, b) in pairwise(peaks):
        if b < a:
            yield f"peak.{fast} is below the peak of a wider precision"
    yield from _check_reference(record.usual_node, "nodes", "usual_node", folders)
    yield from _check_reference(record.calibration, "calibration", "calibration", folders)


def _check_node(record: Node, folders: tuple[str, ...]) -> Iterator[str]:
    """Find references of a node to records that do not exist, and sizes below 1."""
    yield from _check_reference(record.usual_fabric, "fabrics", "usual_fabric", folders)
    if record.collective_calibration:
        yield from _check_reference(record.collective_calibration, "calibration", "collective_calibration", folders)
    if record.scale_up_size.value < 1 or record.accelerators.value < 1:
        yield "accelerators and scale_up_size must be at least 1"
    for topology in record.slices:
        if not SLICE.fullmatch(topology):
            yield f"slices has {topology!r}, expected chips of each axis such as 2x4"


def _check_model(record: Model, folders: tuple[str, ...]) -> Iterator[str]:
    """Find sizes of a model that are below 1 or contradict each other."""
    del folders
    for name in ("hidden_size", "num_hidden_layers", "num_attention_heads", "num_key_value_heads", "head_dim", "vocab_size"):
        if getattr(record, name) < 1:
            yield f"{name} is {getattr(record, name)}, must be at least 1"
            return
    if record.num_attention_heads % record.num_key_value_heads:
        yield "num_key_value_heads does not divide num_attention_heads"
    if record.sliding_window_layers > record.num_hidden_layers:
        yield "sliding_window_layers exceeds num_hidden_layers"


def _check_prices(record: PriceList, folders: tuple[str, ...]) -> Iterator[str]:
    """Find prices of an unknown accelerator, out of order, or without date, region or currency."""
    yield from _check_reference(record.name, "accelerators", "file name", folders)
    dates = [p.date for p in record.price]
    if dates != sorted(dates):
        yield "prices are not in order of date (append new ones, never edit)"
    for price in record.price:
        if not _DATE.match(price.date):
            yield f"price date {price.date!r} is not an ISO date"
        if not price.region or not price.currency:
            yield f"price of {price.provider} on {price.date} has no region or currency"


def _check_site(record: Site, folders: tuple[str, ...]) -> Iterator[str]:
    """Find a site with an impossible place, no power, an unlikely price of electricity, or an unknown grid."""
    if not (-90.0 <= record.latitude <= 90.0 and -180.0 <= record.longitude <= 180.0):
        yield f"latitude {record.latitude}, longitude {record.longitude} is not on Earth"
    if record.power is not None and record.power.value <= 0.0:
        yield "power is 0: leave it out where it is unknown"
    if record.electricity_price is not None and not 0.005 <= record.electricity_price.value * 3.6e6 <= 1.0:
        yield f"electricity_price {record.electricity_price.text} is unlikely: 0.005 to 1 USD/kWh, or leave it out"
    yield from _check_reference(record.grid, "grids", "grid", folders)


def _check_grid(record: Grid, folders: tuple[str, ...]) -> Iterator[str]:
    """Find hourly values that are not one for each hour of the day."""
    del folders
    if record.hourly and set(record.hourly) != {str(hour) for hour in range(24)}:
        yield 'hourly must have the keys "0" to "23"'


def _check_calibration(record: Calibration, folders: tuple[str, ...]) -> Iterator[str]:
    """Find an unknown grade or device, an efficiency above 1, and experts without the constants of their GEMM."""
    if record.grade not in ("measured", "prior"):
        yield f"grade is {record.grade!r}, expected measured or prior"
    if record.device:
        yield from _check_reference(record.device, "accelerators", "device", folders)
    for part, table in (("gemm", record.gemm), ("experts", record.experts)):
        for precision, constants in table.items():
            if not 0.0 < constants.efficiency.value <= 1.0:
                yield f"{part}.{precision}.efficiency {constants.efficiency.text} is above the roof"
    for precision in sorted(record.experts.keys() - record.gemm.keys()):
        yield f"experts.{precision} needs gemm.{precision}"
    for operation in OPERATIONS:
        if operation not in record.collective:
            yield f"collective.{operation} is missing"


def _check_reference(name: str, kind: str, key: str, folders: tuple[str, ...]) -> Iterator[str]:
    """One problem where ``name`` is no record of ``kind``."""
    try:
        load.resolve(kind, name, folders)
    except IronlawError as error:
        yield f"{key}: {error}"


def _check_recipe(record: Recipe, folders: tuple[str, ...]) -> Iterator[str]:
    """Find a narrow product without the format of its operands, an unknown kind of scaling, and shares that are not below 1."""
    narrow = [p for p in (record.forward, record.data_gradient, record.weight_gradient) if p is not None and p.narrow]
    for tensor in ("input", "weight", "gradient") if narrow else ():
        if getattr(record, tensor) is None:
            yield f"products are narrow, but [{tensor}] does not say its format"
    for operand in (record.input, record.weight, record.gradient):
        if operand is not None and (operand.bits < 1 or operand.rows < 0 or operand.columns < 0 or operand.scale_bits < 0):
            yield f"an operand in {operand.element} has bits below 1, or a block or a scale below 0"
    if record.scaling not in ("", "current", "delayed"):
        yield f"scaling is {record.scaling!r}, expected current or delayed"
    if sum(share.value for share in (record.wide_at_start, record.wide_at_end) if share is not None) >= 1.0:
        yield "wide_at_start and wide_at_end leave no narrow layer"
    for field in ("like", "wide", "known_as"):
        if getattr(record, field):
            yield from _check_reference(getattr(record, field), "precisions", field, folders)


def _check_optimizer(record: Optimizer, folders: tuple[str, ...]) -> Iterator[str]:
    """Find traffic below one read and one write of what the optimizer keeps, and traffic of a base that keeps something else."""
    kept = record.master_bytes.value + record.state_bytes
    least = GRADIENT_IN + WEIGHT_OUT + 2.0 * kept
    if record.traffic.value < 0.99 * least:
        yield (
            f"traffic {record.traffic.text} is less than the gradient, the weight, and {kept:g} B of master weights and states"
            f" read and written once: {least:g} B"
        )
    if not record.like:
        return
    base = load.record("optimizers", record.like, folders)
    if kept != base.master_bytes.value + base.state_bytes and record.traffic == base.traffic:
        yield f"traffic {record.traffic.text} is that of {base.name}, which keeps other states: give that of {kept:g} B, about {least:g} B"


_CHECKS: dict[str, Callable[[Any, tuple[str, ...]], Iterator[str]]] = {
    "accelerators": _check_accelerator,
    "nodes": _check_node,
    "models": _check_model,
    "prices": _check_prices,
    "clouds": clouds.problems,
    "sites": _check_site,
    "grids": _check_grid,
    "calibration": _check_calibration,
    "precisions": _check_recipe,
    "optimizers": _check_optimizer,
}
