"""Read and check a saved diagnosis; extract the settings that identify its run, and the times of its steps.

The file may come from anywhere, so every value is checked. Times become int64 nanoseconds by their decimal digits: a diagnosis has them in
microseconds or seconds, and three digits after the point of a microsecond survive.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import ROUND_HALF_EVEN, Decimal
from pathlib import Path
from statistics import fmean, median
from typing import Annotated, Any

import msgspec

from ironlaw.errors import InputError, quote
from ironlaw.files import check_shape, open_file, parse_json
from ironlaw.measure.read.limits import blocks, open_bytes

MOST_BYTES = 64 << 20  # of a diagnosis; 64 ranks and 1000 steps take a tenth of it
MOST_DEPTH = 64
MOST_SAMPLES = 2_000_000
WALL = "wall"
DEVICE = "device"  # time of the step on the device, where the wall time is the host's
TERMS = ("compute", "exposed_comm", "exposed_memcpy", "idle")  # they sum to the wall
BESIDE = ("comm", "memcpy", "busy")  # they overlap with the terms
QUANTITIES = (WALL, *TERMS, *BESIDE)  # of a window
STEP_QUANTITIES = (DEVICE, *QUANTITIES)
_NS = {"us": 1000, "seconds": 1_000_000_000}


@dataclass(frozen=True)
class Sample:
    """One quantity of one step, from one file."""

    file: int  # position in the diagnosis
    rank: int | None
    source: str  # "trace" or "log"
    quantity: str
    step: int
    ns: int


class _Log(msgspec.Struct):
    """The part of a log's entry that the store reads."""

    samples_seconds: list[Any] | None = None


class _File(msgspec.Struct):
    """The entry of one file of a diagnosis."""

    path: str
    device: str | None = None
    rank: Annotated[int, msgspec.Meta(ge=0, lt=1 << 32)] | None = None
    policy: dict[str, Any] | None = None
    window: dict[str, Any] | None = None
    steps: list[dict[str, Any]] | None = None
    log: _Log | None = None


class _Diagnosis(msgspec.Struct):
    """What a saved diagnosis must have."""

    tool_version: str
    files: Annotated[list[_File], msgspec.Meta(min_length=1)]
    verdict: dict[str, Any] | None = None
    settings: dict[str, Any] | None = None
    findings: list[Any] | None = None
    warnings: list[Any] | None = None
    assumptions: list[Any] | None = None


def read_diagnosis(path: str | Path) -> dict[str, Any]:
    """Read the JSON object in ``path``, plain or compressed, within limits of size and depth."""
    with open_bytes(path, MOST_BYTES) as stream:
        data = b"".join(blocks(stream))
    return parse_object(data, str(path))


def parse_object(data: bytes | str, where: str) -> dict[str, Any]:
    """Parse ``data`` as a JSON object; ``where`` names it in error messages."""
    try:
        tree = parse_json(data)
    except RecursionError:
        raise InputError(f"{where}: nested deeper than {MOST_DEPTH} levels; not a diagnosis") from None
    except ValueError as error:  # JSONDecodeError, UnicodeDecodeError, an integer of thousands of digits
        raise InputError(f"{where}: not JSON: {error}; give a file from `ironlaw diagnose --json` or `ironlaw runs export`") from None
    if not isinstance(tree, dict):
        raise InputError(f"{where}: {quote(tree)} is not an object; give a file from `ironlaw diagnose --json`")
    _check_tree(tree, where)
    return tree


def check_diagnosis(diagnosis: Any, where: str) -> dict[str, Any]:
    """Check the parts of ``diagnosis`` that the store reads, and return it unchanged."""
    if not isinstance(diagnosis, dict):
        raise InputError(f"{where}: the diagnosis is {quote(diagnosis)}, not an object")
    if "ironlaw_run" in diagnosis:
        raise InputError(f"{where}: an exported run, not a diagnosis: store it with `ironlaw runs import`")
    check_shape(diagnosis.get("schema_version"), int, where, "schema_version", "; give a file from `ironlaw diagnose --json`")
    _check_tree(diagnosis, where)
    check_shape(diagnosis, _Diagnosis, where)
    for i, entry in enumerate(diagnosis["files"]):
        _check_window(entry, f"{where}: files[{i}].window")
    for count, _ in enumerate(step_samples(diagnosis, where)):
        if count >= MOST_SAMPLES:
            raise InputError(f"{where}: more than {MOST_SAMPLES} step samples; diagnose fewer steps at a time")
    return diagnosis


def _check_window(entry: Mapping[str, Any], where: str) -> None:
    """Check the times of a file's window."""
    for quantity in QUANTITIES:
        value = (entry.get("window") or {}).get(f"{quantity}_us")
        if value is not None:
            nanoseconds(value, "us", f"{where}.{quantity}_us")


def _check_tree(data: Any, where: str) -> None:
    """Check depth, finite numbers and text keys; without recursion, so that depth cannot crash the process."""
    stack = [(data, 0)]
    while stack:
        item, depth = stack.pop()
        if depth > MOST_DEPTH:
            raise InputError(f"{where}: nested deeper than {MOST_DEPTH} levels; not a diagnosis")
        if isinstance(item, dict):
            strange = next((k for k in item if not isinstance(k, str)), None)
            if strange is not None:
                raise InputError(f"{where}: a key is {quote(strange)}, not text")
            stack += [(value, depth + 1) for value in item.values()]
        elif isinstance(item, (list, tuple)):
            stack += [(value, depth + 1) for value in item]
        elif isinstance(item, float):
            if not math.isfinite(item):
                raise InputError(f"{where}: a number is {item}, which JSON does not allow")
        elif isinstance(item, int) and not -(1 << 1023) < item < 1 << 1023:
            raise InputError(f"{where}: a number of {item.bit_length() * 3 // 10} digits, too large for a time or a size")
        elif item is not None and not isinstance(item, (str, int)):
            raise InputError(f"{where}: has a {type(item).__name__}, which JSON does not allow")


def nanoseconds(value: Any, unit: str, where: str) -> int:
    """Convert ``value`` from ``us`` or ``seconds`` to whole nanoseconds by its decimal digits, rounded to the nearest.

    >>> nanoseconds(0.001, "us", "x"), nanoseconds(126.64, "seconds", "x"), nanoseconds(9007199254740.993, "us", "x")
    (1, 126640000000, 9007199254740992)
    """
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value):
        raise InputError(f"{where} is {quote(value)}, not a number of {unit}")
    exact = Decimal(value) if isinstance(value, int) else Decimal(repr(value))
    ns = int((exact * _NS[unit]).to_integral_value(ROUND_HALF_EVEN))
    if not 0 <= ns < 1 << 63:
        raise InputError(f"{where} is {quote(value)} {unit}, not a length of time")
    return ns


def step_samples(diagnosis: Mapping[str, Any], where: str = "the diagnosis") -> Iterator[Sample]:
    """Yield the step samples of a diagnosis: every quantity of each step of a trace, the step times of a log."""
    for i, entry in enumerate(diagnosis["files"]):
        rank, at = entry.get("rank"), f"{where}: files[{i}]"
        for k, step in enumerate(entry.get("steps") or ()):
            number = step.get("number", k)
            if isinstance(number, bool) or not isinstance(number, int) or abs(number) >= 1 << 63:
                raise InputError(f"{at}.steps[{k}].number is {quote(number)}, not a whole number")
            for quantity in STEP_QUANTITIES:
                value = step.get(f"{quantity}_us")
                if value is not None:
                    yield Sample(i, rank, "trace", quantity, number, nanoseconds(value, "us", f"{at}.steps[{k}].{quantity}_us"))
        times = (entry.get("log") or {}).get("samples_seconds")
        for k, value in enumerate(times or ()):
            if value is not None:
                yield Sample(i, rank, "log", WALL, k, nanoseconds(value, "seconds", f"{at}.log.samples_seconds[{k}]"))


def values_by_step(samples: Sequence[Sample]) -> dict[str, list[float]]:
    """Map each quantity to one value for each step of the job [ns]: step times of the slowest rank, other quantities as means over ranks.

    The step time of a rank is the longer of two: the time the host spent in the step, and the time on the device from its first event to
    its last. The device's leaves out the wait before its first event; the host's ends too early where the host runs ahead.
    Step times come from logs where there are any, because a profiler slows the run; the parts come from traces. The ranks of one job wait
    for each other, so they give one sample together. A file without a rank, or a rank seen twice, counts as another run.
    """
    groups: dict[str, dict[tuple[Any, int], list[int]]] = defaultdict(lambda: defaultdict(list))
    source = "log" if any(s.source == "log" for s in samples) else "trace"
    ranks = {s.file: s.rank for s in samples}
    copies: Counter[int] = Counter()
    owner: dict[int, Any] = {}
    for file in sorted(ranks):
        rank = ranks[file]
        owner[file] = ("file", file) if rank is None else ("job", copies[rank])
        if rank is not None:
            copies[rank] += 1
    for s in samples:
        name = WALL if s.quantity == DEVICE else s.quantity
        if name != WALL or s.source == source:
            groups[name][owner[s.file], s.step].append(s.ns)
    return {q: [float(max(v)) if q == WALL else fmean(v) for v in steps.values()] for q, steps in groups.items()}


def medians(values: Mapping[str, Sequence[float]]) -> dict[str, float]:
    """The median of each quantity."""
    return {name: median(column) for name, column in values.items() if column}


def comparable_settings(diagnosis: Mapping[str, Any]) -> dict[str, Any]:
    """Settings that must be equal for two runs to be compared: hardware, software, workload, and the options of the diagnosis.

    Left out are the commit, which differs between a baseline and a run, and the version of ironlaw.
    """
    files = diagnosis["files"]
    ranks = {entry["rank"] for entry in files if entry.get("rank") is not None}
    recorded = [e.get("world_size") or (e.get("log") or {}).get("world_size") for e in files]
    sizes = [size for size in recorded if isinstance(size, int)]
    return {
        "hardware": {
            "devices": sorted({entry.get("device") or "" for entry in files}),
            "ranks": max([*sizes, len(ranks)]),
            "more": diagnosis.get("hardware"),
        },
        "software": {
            "formats": sorted({str((entry.get("log") or {}).get("format") or entry.get("reader") or "trace") for entry in files}),
            "files": _distinct(entry.get("software") for entry in files),
            "more": diagnosis.get("software"),
        },
        "workload": diagnosis.get("workload"),
        "policy": {"schema": diagnosis["schema_version"], "files": _distinct(entry.get("policy") for entry in files)},
    }


def _distinct(values: Iterator[Any] | Any) -> list[Any]:
    """Each value once, in an order that does not depend on the order of the files."""
    return [json.loads(text) for text in sorted({canonical_json(value) for value in values if value is not None})]


def is_contended(diagnosis: Mapping[str, Any]) -> bool:
    """Whether a mark on the diagnosis or on a file, or a finding of that name, says that others used the machine."""
    marks = [diagnosis, *diagnosis["files"]]
    findings = [f for f in diagnosis.get("findings") or () if isinstance(f, dict)]
    return any(m.get("contended") is True for m in marks) or any(
        str(f.get(key, "")).startswith("contended") for f in findings for key in ("name", "code", "kind")
    )


def verdict_roof(diagnosis: Mapping[str, Any]) -> str | None:
    """The bottleneck of the verdict, None where there is no verdict."""
    roof = (diagnosis.get("verdict") or {}).get("roof")
    return roof if isinstance(roof, str) else None


def canonical_json(data: Any) -> str:
    """JSON text that is the same for equal data."""
    return json.dumps(data, sort_keys=True, separators=(",", ":"), allow_nan=False)


def sha256_of(data: Any) -> str:
    """The sha256 of the canonical JSON of ``data``."""
    return hashlib.sha256(canonical_json(data).encode()).hexdigest()


def file_digests(diagnosis: Mapping[str, Any], from_disk: bool) -> list[str | None]:
    """The sha256 of each file: from the diagnosis, else, with ``from_disk``, of the file if it still exists."""
    return [_valid_digest(e.get("sha256")) or (_file_digest(e["path"]) if from_disk else None) for e in diagnosis["files"]]


def _valid_digest(text: Any) -> str | None:
    valid = isinstance(text, str) and len(text) == 64 and set(text) <= set("0123456789abcdef")
    return text if valid else None


def _file_digest(path: str) -> str | None:
    """The sha256 of a file; None where it cannot be read."""
    try:
        with open_file(path) as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except (OSError, InputError):
        return None
