"""The store of measured runs: one SQLite file on this machine. A run is stored whole or not at all.

A run is its diagnosis as printed, a fingerprint of its hardware, software and workload, and the times of its steps. Every fault of a
store (busy, damaged, another program's, a newer version's, read-only) is one InputError.
"""

from __future__ import annotations

import json
import os
import sqlite3
import stat
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from ironlaw import units
from ironlaw.errors import InputError, QuestionError, UnknownNameError
from ironlaw.files import is_there, make_private
from ironlaw.measure.runs import saved_diagnosis
from ironlaw.measure.runs.gate import Gate, gate
from ironlaw.measure.runs.saved_diagnosis import Sample

APPLICATION = 0x49524E4C  # "IRNL" in the header of the file: whose database it is
BUSY_SECONDS = 10.0
DAMAGED = "damaged; restore a copy, or move the file away to start a new store"
HISTORY = 50  # the newest runs, from which noise is learned
MOST_LABEL = 80
_ID = 12  # hex digits of the diagnosis' sha256

# Step k of this list takes a store from version k to k + 1; a store's version is SQLite's user_version.
MIGRATIONS: tuple[tuple[str, ...], ...] = (
    (
        "CREATE TABLE run (number INTEGER PRIMARY KEY AUTOINCREMENT, id TEXT NOT NULL UNIQUE, label TEXT, kept_at TEXT NOT NULL,"
        " tool_version TEXT NOT NULL, origin TEXT NOT NULL, fingerprint TEXT NOT NULL, settings TEXT NOT NULL, content TEXT NOT NULL,"
        " step_ns REAL, steps INTEGER NOT NULL, roof TEXT, contended INTEGER NOT NULL, diagnosis TEXT NOT NULL)",
        "CREATE INDEX run_fingerprint ON run (fingerprint, number)",
        "CREATE INDEX run_label ON run (label, number)",
        "CREATE TABLE file (run INTEGER NOT NULL REFERENCES run ON DELETE CASCADE, position INTEGER NOT NULL, path TEXT NOT NULL,"
        " rank INTEGER, device TEXT, sha256 TEXT, PRIMARY KEY (run, position)) WITHOUT ROWID",
        "CREATE TABLE sample (run INTEGER NOT NULL REFERENCES run ON DELETE CASCADE, file INTEGER NOT NULL, rank INTEGER,"
        " source TEXT NOT NULL, quantity TEXT NOT NULL, step INTEGER NOT NULL, ns INTEGER NOT NULL)",
        "CREATE INDEX sample_run ON sample (run)",
    ),
)
SCHEMA = len(MIGRATIONS)


@dataclass(frozen=True)
class StoredRun:
    """One run in the store, without its diagnosis and its samples."""

    number: int  # counts runs in the order in which they were stored
    id: str
    label: str | None
    kept_at: str  # UTC
    tool_version: str
    origin: str  # "diagnosed", "added", "imported"
    fingerprint: str  # hash of the settings: equal for runs that can be compared
    settings: dict[str, Any]
    content: str  # hash of the files: equal for the same recording
    step_ns: float | None  # median over steps
    steps: int
    roof: str | None
    contended: bool
    store: str
    new: bool = False  # whether this call stored it; the same diagnosis is stored once
    renamed: str | None = None  # the earlier label of a stored diagnosis, which this call replaced


# in the order of StoredRun
_COLUMNS = "number, id, label, kept_at, tool_version, origin, fingerprint, settings, content, step_ns, steps, roof, contended"


def default_path() -> Path:
    """The default store: $IRONLAW_STORE, else the platform's folder for user data."""
    if configured := os.environ.get("IRONLAW_STORE"):
        return Path(configured)
    try:
        if sys.platform == "win32":
            folder = Path(os.environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local")
        elif sys.platform == "darwin":
            folder = Path.home() / "Library" / "Application Support"
        else:
            folder = Path(os.environ.get("XDG_DATA_HOME") or Path.home() / ".local" / "share")
    except RuntimeError:
        raise InputError("no home folder for the store: give --store FILE or set IRONLAW_STORE") from None
    return folder / "ironlaw" / "runs.sqlite"


def save_run(
    diagnosis: Mapping[str, Any],
    label: str | None = None,
    store: str | Path | None = None,
    origin: str = "diagnosed",
    contended: bool = False,
) -> StoredRun:
    """Store a diagnosis with its samples. The same diagnosis is stored once; a second call only sets the label, where one is given."""
    data = saved_diagnosis.check_diagnosis(dict(diagnosis), "the diagnosis")
    check_label(label)
    files = saved_diagnosis.file_digests(data, from_disk=origin == "diagnosed")
    run = saved_diagnosis.sha256_of(data)[:_ID]
    samples = list(saved_diagnosis.step_samples(data))
    walls = saved_diagnosis.values_by_step(samples).get(saved_diagnosis.WALL, [])
    settings = saved_diagnosis.comparable_settings(data)
    row = {
        "id": run,
        "label": label,
        "kept_at": datetime.now(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z"),
        "tool_version": str(data["tool_version"]),
        "origin": origin,
        "fingerprint": saved_diagnosis.sha256_of(settings)[:16],
        "settings": saved_diagnosis.canonical_json(settings),
        "content": saved_diagnosis.sha256_of(sorted(files)) if all(files) else saved_diagnosis.sha256_of(data["files"]),
        "step_ns": saved_diagnosis.medians({"wall": walls}).get("wall"),
        "steps": len(walls),
        "roof": _as_utf8(saved_diagnosis.verdict_roof(data)),
        "contended": int(contended or saved_diagnosis.is_contended(data)),
        "diagnosis": json.dumps(data, allow_nan=False),
    }
    with _open_store(store, write=True, make=True) as db:
        before = db.execute("SELECT label FROM run WHERE id = ?", (run,)).fetchone()
        if new := before is None:
            db.execute(f"INSERT INTO run ({', '.join(row)}) VALUES ({', '.join(':' + c for c in row)})", row)
            number = db.execute("SELECT number FROM run WHERE id = ?", (run,)).fetchone()[0]
            db.executemany("INSERT INTO file VALUES (?, ?, ?, ?, ?, ?)", _file_rows(number, data, files))
            db.executemany("INSERT INTO sample VALUES (?, ?, ?, ?, ?, ?, ?)", _sample_rows(number, samples))
        elif label is not None:
            db.execute("UPDATE run SET label = ? WHERE id = ?", (label, run))
        return replace(_select_run(db, run, new), renamed=before[0] if before and label not in (None, before[0]) else None)


def _file_rows(number: int, data: Mapping[str, Any], files: list[str | None]) -> Iterator[tuple[Any, ...]]:
    for i, (entry, sha) in enumerate(zip(data["files"], files, strict=True)):
        yield number, i, _as_utf8(entry["path"]), entry.get("rank"), _as_utf8(entry.get("device")), sha


def _sample_rows(number: int, samples: list[Sample]) -> Iterator[tuple[Any, ...]]:
    for s in samples:
        yield number, s.file, s.rank, s.source, s.quantity, s.step, s.ns


def _as_utf8(text: str | None) -> str | None:
    """Text that SQLite can store: each byte of a path that is not UTF-8 becomes a question mark."""
    return None if text is None else text.encode("utf-8", "replace").decode()


def list_runs(store: str | Path | None = None, label: str | None = None, most: int | None = None) -> list[StoredRun]:
    """List runs, the newest first: all, those of one label, or the newest ``most``."""
    with _open_store(store) as db:
        if db is None:
            return []
        where = "WHERE label = ?" if label is not None else ""
        parameters = ([label] if label is not None else []) + [-1 if most is None else most]
        rows = db.execute(f"SELECT {_COLUMNS} FROM run {where} ORDER BY number DESC LIMIT ?", parameters).fetchall()
        return [_run_from_row(row, db.path) for row in rows]


def load_run(run: str, store: str | Path | None = None) -> tuple[StoredRun, dict[str, Any]]:
    """Load a run and its diagnosis. ``run`` is an id, a label (its newest run), the start of one id, or ``latest``."""
    with _open_store(store) as db:
        stored = _select_run(db, _find_id(db, run, store))
        text = db.execute("SELECT diagnosis FROM run WHERE id = ?", (stored.id,)).fetchone()[0]
    where = f"{stored.store}: run {stored.id}"
    return stored, saved_diagnosis.check_diagnosis(saved_diagnosis.parse_object(text, where), where)


def load_samples(run: str, store: str | Path | None = None) -> list[Sample]:
    """Load the samples of a run, ordered by file and step."""
    with _open_store(store) as db:
        return _select_samples(db, _select_run(db, _find_id(db, run, store)).number)


def label_run(run: str, label: str | None, store: str | Path | None = None) -> StoredRun:
    """Replace the label of a run; None removes it."""
    check_label(label)
    with _open_store(store, write=True) as db:
        name = _find_id(db, run, store)
        db.execute("UPDATE run SET label = ? WHERE id = ?", (label, name))
        return _select_run(db, name)


def delete_run(run: str, store: str | Path | None = None) -> StoredRun:
    """Delete a run; its bytes in the file are overwritten."""
    with _open_store(store, write=True) as db:
        stored = _select_run(db, _find_id(db, run, store))
        db.execute("DELETE FROM run WHERE id = ?", (stored.id,))
        return stored


@dataclass(frozen=True)
class GatedRun:
    """The answer of a gate, with the two runs that it compares."""

    baseline: StoredRun
    run: StoredRun
    gate: Gate


def gate_run(baseline: str, run: str = "latest", store: str | Path | None = None, across: bool = False) -> GatedRun:
    """Compare a run with the baseline. The noise comes from the other stored runs with the baseline's fingerprint."""
    with _open_store(store) as db:
        a, b = (_select_run(db, _find_id(db, name, store)) for name in (baseline, run))
        if a.id == b.id:
            raise QuestionError(f"{baseline!r} and {run!r} are the same run {a.id}: store another run, or name the run to check")
        rows = db.execute(
            "SELECT number, content FROM run WHERE fingerprint = ? AND content NOT IN (?, ?) AND contended = 0"
            " ORDER BY number DESC LIMIT ?",
            (a.fingerprint, a.content, b.content, HISTORY),
        ).fetchall()
        numbers = sorted({content: number for number, content in reversed(rows)}.values())  # each recording once
        history = [saved_diagnosis.medians(saved_diagnosis.values_by_step(_select_samples(db, number))) for number in numbers]
        before, after = (saved_diagnosis.values_by_step(_select_samples(db, stored.number)) for stored in (a, b))
    doubts = ["both runs are the same recording: there is nothing to compare"] if a.content == b.content else []
    return GatedRun(a, b, gate(before, after, history, doubts + ([] if across else _reasons_not_to_compare(a, b))))


def _reasons_not_to_compare(a: StoredRun, b: StoredRun) -> list[str]:
    """Why two runs should not be compared without --across."""
    reasons = []
    if a.fingerprint != b.fingerprint:
        parts = [part for part in a.settings if a.settings[part] != b.settings.get(part)]
        reasons.append(f"the fingerprints differ in {', '.join(parts)}: give --across to compare them anyway")
    shared = [name for name, stored in (("the baseline", a), ("the run", b)) if stored.contended]
    if shared:
        reasons.append(f"others used the machine during {' and '.join(shared)}: give --across to compare them anyway")
    return reasons


def check_label(label: str | None) -> None:
    """Refuse a label that looks like an id, or that cannot be read in a list."""
    if label is None:
        return
    if not 0 < len(label) <= MOST_LABEL or not label.isprintable() or label != label.strip():
        raise QuestionError(f"label {label[:100]!r}: give 1 to {MOST_LABEL} printable characters, no spaces at either end")
    if label == "latest":
        raise QuestionError("label 'latest' is reserved for the newest run: choose another")
    if len(label) == _ID and set(label) <= set("0123456789abcdef"):
        raise QuestionError(f"label {label!r} looks like the id of a run: choose another")


# The file


class _Database(sqlite3.Connection):
    """A connection with the path of its file."""

    path: str = ""


@contextmanager
def _open_store(store: str | Path | None, write: bool = False, make: bool = False) -> Iterator[Any]:
    """Open the store and run one transaction in it; give None where there is no store yet and ``make`` is false."""
    path = Path(store) if store else default_path()
    db: _Database | None = None
    try:
        _prepare_file(path, make)
        if not is_there(path):
            yield None
            return
        db = _connect(path, write)
        db.execute("BEGIN IMMEDIATE" if write else "BEGIN")
        if not _upgrade(db, make, write):
            db.rollback()
            yield None
            return
        yield db
        db.commit()
    except sqlite3.Error as error:
        raise _explain(error, path) from error
    except UnicodeError as error:  # a message of SQLite quotes names of the file, which are not UTF-8 where it is damaged
        raise InputError(f"{path}: {DAMAGED}") from error
    except OSError as error:
        raise InputError(f"{path}: cannot be opened as a store: {error.strerror or error}") from error
    finally:
        if db is not None:
            db.close()  # rolls back what is not committed


def _prepare_file(path: Path, make: bool) -> None:
    """Refuse what is not a plain file; create a new store and its folder, readable by the user alone."""
    if "\0" in str(path):
        raise InputError(f"{str(path)!r}: not the name of a file")
    if is_there(path) and not stat.S_ISREG(path.stat().st_mode):
        raise InputError(f"{path}: not a file; a store is one SQLite file")
    if make and not is_there(path):
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        make_private(path)  # empty: the first writer creates the tables


def _connect(path: Path, write: bool) -> _Database:
    """Connect without trusting anything in the file; wait for other writers."""
    # a reader opens for writing too where it may: the next connection rolls back what a killed writer left
    mode = "rw" if write or os.access(path, os.W_OK) else "ro"
    db = sqlite3.connect(f"{path.absolute().as_uri()}?mode={mode}", uri=True, timeout=BUSY_SECONDS, isolation_level=None, factory=_Database)
    db.path = str(path)
    for pragma in ("trusted_schema = OFF", "cell_size_check = ON", "foreign_keys = ON", "secure_delete = ON"):
        db.execute(f"PRAGMA {pragma}")
    if not write:
        db.execute("PRAGMA query_only = ON")
    return db


def _upgrade(db: _Database, make: bool, write: bool) -> bool:
    """Upgrade the store to this version's schema; False where it is empty and ``make`` is false."""
    version = db.execute("PRAGMA user_version").fetchone()[0]
    owner = db.execute("PRAGMA application_id").fetchone()[0]
    tables = db.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]
    if (tables or version) and owner != APPLICATION:
        raise InputError(f"{db.path}: the database of another program, not a store of runs; give another --store")
    if version > SCHEMA:
        raise InputError(
            f"{db.path}: written by a newer ironlaw (schema {version}, this version reads {SCHEMA}): update ironlaw or give another --store"
        )
    if version == SCHEMA:
        return True
    if not make and not tables:
        return False
    if not write:
        raise InputError(f"{db.path}: schema {version} of an older ironlaw; store or label a run to upgrade it to {SCHEMA}")
    for step in MIGRATIONS[version:]:
        for statement in step:
            db.execute(statement)
    db.execute(f"PRAGMA application_id = {APPLICATION}")
    db.execute(f"PRAGMA user_version = {SCHEMA}")
    return True


def _explain(error: sqlite3.Error, path: Path) -> InputError:
    """One line for an error of SQLite: the cause, and what to do."""
    name = getattr(error, "sqlite_errorname", "") or ""
    causes = (
        ("SQLITE_BUSY", f"another process has been writing for {BUSY_SECONDS:g} s: try again later"),
        ("SQLITE_LOCKED", "another process is writing: try again later"),
        ("SQLITE_NOTADB", "not an SQLite file, so not a store of runs; give another --store"),
        ("SQLITE_CORRUPT", DAMAGED),
        ("SQLITE_READONLY", "read-only; change its permissions, or give another --store"),
        ("SQLITE_CANTOPEN", "cannot be opened or created: check the folder and its permissions, or give another --store"),
        ("SQLITE_FULL", f"the disk is full; nothing in the store was changed: free {_room(path)}, and ask again"),
        ("SQLITE_PERM", "permission denied; give another --store"),
    )
    reason = next((text for prefix, text in causes if name.startswith(prefix)), None)
    return InputError(f"{path}: {reason}" if reason else f"{path}: SQLite failed on the store ({' '.join(str(error).split())})")


def _room(path: Path) -> str:
    """What a change of a store needs on its disk, as text; to forget a run too, as the pages that are overwritten are first copied."""
    return f"up to {units.show(path.stat().st_size, 'B')} for the journal, which holds the pages to be changed until they are written"


def _find_id(db: _Database | None, run: str, store: str | Path | None) -> str:
    """The id of the run that ``run`` names: an id, a label (its newest run), the start of one id, or ``latest``."""
    path = db.path if db else store or default_path()
    no_runs = QuestionError(f"no runs in {path}: store one with `ironlaw diagnose FILE --keep` or `ironlaw runs add`")
    if db is None:
        raise no_runs
    if run == "latest":
        rows = db.execute("SELECT id FROM run ORDER BY number DESC LIMIT 1").fetchall()
        if not rows:
            raise no_runs
        return str(rows[0][0])
    run = _as_utf8(run) or ""
    for query in ("SELECT id FROM run WHERE id = ?", "SELECT id FROM run WHERE label = ? ORDER BY number DESC LIMIT 1"):
        row = db.execute(query, (run,)).fetchone()
        if row:
            return str(row[0])
    starts = db.execute("SELECT id FROM run WHERE substr(id, 1, ?) = ? ORDER BY id", (len(run), run)).fetchall() if run else []
    if len(starts) == 1:
        return str(starts[0][0])
    if starts:
        raise QuestionError(f"{run!r} is the start of {len(starts)} ids ({', '.join(r[0] for r in starts[:4])}): give more digits")
    known = [name for row in db.execute("SELECT id, label FROM run") for name in row if name]
    raise UnknownNameError("run", run, [*known, "latest"] if known else [], db.path)


def _select_run(db: _Database, run: str, new: bool = False) -> StoredRun:
    return _run_from_row(db.execute(f"SELECT {_COLUMNS} FROM run WHERE id = ?", (run,)).fetchone(), db.path, new)


def _run_from_row(row: tuple[Any, ...], path: str, new: bool = False) -> StoredRun:
    """A StoredRun from a row of the database; InputError where the row is damaged."""
    fields = dict(zip(_COLUMNS.split(", "), row, strict=True))
    if any(isinstance(value, bytes) for value in row) or not isinstance(fields["step_ns"], (float, type(None))):
        raise InputError(f"{path}: run {fields['id']!r} is damaged: restore a copy, or move the store away")
    fields["settings"] = saved_diagnosis.parse_object(fields["settings"], f"{path}: run {fields['id']}")
    return StoredRun(**{**fields, "contended": bool(fields["contended"])}, store=path, new=new)


def _select_samples(db: _Database, number: int) -> list[Sample]:
    """The samples of a run; InputError where they are damaged."""
    rows = db.execute("SELECT file, rank, source, quantity, step, ns FROM sample WHERE run = ? ORDER BY rowid", (number,))
    samples = [Sample(*row) for row in rows]
    if any(not isinstance(s.ns, int) or not isinstance(s.quantity, str) for s in samples):
        raise InputError(f"{db.path}: the samples of run {number} are damaged: restore a copy, or move the store away")
    return samples
