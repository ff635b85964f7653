"""Recognise files by their first bytes, never by their name."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

from ironlaw.cautions.record import Caution
from ironlaw.cautions.table import caution
from ironlaw.errors import InputError
from ironlaw.files import check_name, is_folder
from ironlaw.measure import logs
from ironlaw.measure.logs import HEAD
from ironlaw.measure.read import memory_text, memory_timeline, nsys, snapshot
from ironlaw.measure.read.limits import head
from ironlaw.question.trainer_files import trainer_of

MOST_FILES = 4096  # in a folder: one trace per rank, and some more
READS = "Chrome traces of torch.profiler, Nsight Systems SQLite, training logs, nccl-tests output, memory snapshots, out-of-memory messages"


def kind_of(path: str | Path, sure: bool = False) -> str:
    """``chrome``, ``nsys``, ``snapshot``, ``timeline``, ``log`` or ``memory``; for any other file an InputError lists what ironlaw reads.

    JSON without an event in its first megabytes counts as a trace if the user named the file, but not with ``sure``.
    """
    start = head(path, HEAD)
    kind = _kind(start)
    if kind == "estimate":
        raise InputError(f"{path}: an estimate, not a measurement: give it with --against FILE")
    if kind == "json" and sure:
        raise InputError(f"{path}: JSON without traceEvents")
    if not start.strip():
        raise InputError(f"{path}: only white space; was the file still being written?" if start else f"{path}: empty after unpacking")
    if kind is None and str(path).endswith(".nsys-rep"):
        raise InputError(f"{path}: a report of Nsight Systems; run: nsys export --type sqlite {path}")
    if kind in (None, "json") and (known := trainer_of(start.decode("utf-8", "replace"))):
        raise InputError(f"{path}: {known}")
    if kind is None:
        raise InputError(f"{path}: unknown kind of file; ironlaw reads {READS}")
    return "chrome" if kind == "json" else kind


def _kind(start: bytes) -> str | None:
    """The kind of a file by its first bytes; None where no reader knows it."""
    text = start.lstrip()
    if nsys.recognise(start):
        return "nsys"
    if snapshot.recognise(start):
        return "snapshot"
    if memory_timeline.recognise(start):
        return "timeline"
    if text[:1] == b"{" and b'"traceEvents"' in text:  # before logs, whose recognition searches the whole text: 0.3 s
        return "chrome"
    if logs.recognise(start) is not None:
        return "log"
    if memory_text.recognise(start):
        return "memory"
    if text[:1] in (b"{", b"[") and any(key in text for key in (b'"traceEvents"', b'"ph"', b'"schemaVersion"', b'"deviceProperties"')):
        return "chrome"
    if b'"schema_version"' in text and b'"step"' in text:
        return "estimate"
    return "json" if text[:1] == b"{" else None


def files_of(paths: Iterable[str | Path]) -> tuple[list[Path], list[Caution]]:
    """List the files to read, folders expanded and sorted; and a warning for each file in a folder that is skipped."""
    files: list[Path] = []
    skipped: list[Caution] = []
    for path in map(Path, paths):
        check_name(path)
        if not is_folder(path):
            files.append(path)
            continue
        candidates = sorted(Path(root) / name for root, _, names in os.walk(path) for name in names if not name.startswith("."))
        if len(candidates) > MOST_FILES:
            raise InputError(f"{path}: {len(candidates)} files in this folder; at most {MOST_FILES} are read: give the files themselves")
        readable = []
        for file in candidates:
            try:
                kind_of(file, sure=True)
            except InputError as error:
                skipped.append(caution("file-skipped", why=str(error)))
            else:
                readable.append(file)
        if not readable:
            first = f"; the first: {skipped[-len(candidates)].values['why']}" if candidates else f"; ironlaw reads {READS}"
            raise InputError(f"{path}: no trace or log among {len(candidates)} files{first}")
        files += readable
    once = {os.path.realpath(file): file for file in reversed(files)}  # also a file that has several names
    return list(once.values())[::-1], skipped
