"""What a file is, by its first bytes; never by its name."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

from ironlaw.errors import InputError
from ironlaw.measure import logs
from ironlaw.measure.logs import HEAD
from ironlaw.measure.read import memory_timeline, nsys, snapshot
from ironlaw.measure.read.limits import head

MOST_FILES = 4096  # in folders: one trace a rank, and room beside it
READS = "Chrome traces of torch.profiler, Nsight Systems SQLite, training logs, nccl-tests output, memory snapshots"


def kind_of(path: str | Path, sure: bool = False) -> str:
    """``chrome``, ``nsys``, ``snapshot``, ``timeline`` or ``log``; an InputError says what is read where it is none of them.

    JSON whose first megabytes name no event is read as a trace where a user named the file, and not where one is to be ``sure``.
    """
    start = head(path, HEAD)
    kind = _kind(start)
    if kind == "estimate":
        raise InputError(f"{path}: an estimate, not a measurement: give it as --against FILE beside the trace")
    if kind == "json" and sure:
        raise InputError(f"{path}: JSON without traceEvents")
    if not start.strip():
        raise InputError(f"{path}: nothing but white space in it; was it still being written?" if start else f"{path}: unpacks to nothing")
    if kind is None:
        raise InputError(f"{path}: nothing ironlaw knows; it reads {READS}")
    return "chrome" if kind == "json" else kind


def _kind(start: bytes) -> str | None:
    text = start.lstrip()
    if nsys.recognise(start):
        return "nsys"
    if snapshot.recognise(start):
        return "snapshot"
    if memory_timeline.recognise(start):
        return "timeline"
    if text[:1] == b"{" and b'"traceEvents"' in text:  # before logs, whose signs are looked for through all of it: 0.3 s
        return "chrome"
    if logs.recognise(start) is not None:
        return "log"
    if text[:1] in (b"{", b"[") and any(key in text for key in (b'"traceEvents"', b'"ph"', b'"schemaVersion"', b'"deviceProperties"')):
        return "chrome"
    if b'"schema_version"' in text and b'"step"' in text:
        return "estimate"
    return "json" if text[:1] == b"{" else None


def files_of(paths: Iterable[str | Path]) -> tuple[list[Path], list[str]]:
    """The files to read, folders opened and sorted; and a line for each file of a folder that is nothing known."""
    found: list[Path] = []
    passed: list[str] = []
    for path in map(Path, paths):
        if not path.is_dir():
            found.append(path)
            continue
        inside = sorted(Path(root) / name for root, _, names in os.walk(path) for name in names if not name.startswith("."))
        if len(inside) > MOST_FILES:
            raise InputError(f"{path}: {len(inside)} files in this folder; at most {MOST_FILES} are read: name the files")
        known = []
        for file in inside:
            try:
                kind_of(file, sure=True)
            except InputError as error:
                passed.append(f"passed over: {error}")
            else:
                known.append(file)
        if not known:
            first = f"; the first: {passed[-len(inside)].removeprefix('passed over: ')}" if inside else f"; ironlaw reads {READS}"
            raise InputError(f"{path}: no trace or log among its {len(inside)} files{first}")
        found += known
    return list({os.path.realpath(file): file for file in reversed(found)}.values())[::-1], passed  # each once, by whatever name
