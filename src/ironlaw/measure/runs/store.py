"""Measured runs kept on this machine: one SQLite file, whole runs or nothing, and nothing that leaves the machine.

A run is its diagnosis as it was printed, a fingerprint of what it ran on, and the samples of its steps in a table of their own. What
is wrong with a store is one InputError: busy, damaged, not ours, written by a newer version, not to be written to.
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

from ironlaw.errors import InputError, QuestionError, UnknownNameError
from ironlaw.measure.runs import recorded
from ironlaw.measure.runs.gate import Gate, gate
from ironlaw.measure.runs.recorded import Sample

APPLICATION = 0x49524E4C  # "IRNL" in the header of the file: whose database it is
BUSY_SECONDS = 10.0
HISTORY = 50  # runs that noise is learned from: the newest
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
class Kept:
    """A run as the store lists it."""

    number: int  # in the order kept
    id: str
    label: str | None
    kept_at: str  # UTC
    tool_version: str
    origin: str  # "diagnosed", "added", "imported"
    fingerprint: str  # of the settings: equal for runs that can be compared
    settings: dict[str, Any]
    content: str  # of the files: equal for the same recording
    step_ns: float | None  # median over steps
    steps: int
    roof: str | None
    contended: bool
    store: str
    new: bool = False  # whether this call kept it; the same diagnosis is kept once
    renamed: str | None = None  # the label that this call took away from a diagnosis kept before


_COLUMNS = (
    "number, id, label, kept_at, tool_version, origin, fingerprint, settings, content, step_ns, steps, roof, contended"  # in Kept's order
)


def default_path() -> Path:
    """Where runs are kept unless said otherwise: $IRONLAW_STORE, else the platform's folder for a user's data."""
    if given := os.environ.get("IRONLAW_STORE"):
        return Path(given)
    try:
        if sys.platform == "win32":
            folder = Path(os.environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local")
        elif sys.platform == "darwin":
            folder = Path.home() / "Library" / "Application Support"
        else:
            folder = Path(os.environ.get("XDG_DATA_HOME") or Path.home() / ".local" / "share")
    except RuntimeError:
        raise InputError("no home folder to keep runs in: give --store FILE or set IRONLAW_STORE") from None
    return folder / "ironlaw" / "runs.sqlite"


def keep(
    diagnosis: Mapping[str, Any],
    label: str | None = None,
    store: str | Path | None = None,
    origin: str = "diagnosed",
    contended: bool = False,
) -> Kept:
    """Keep a diagnosis with its samples; the same diagnosis again is not kept twice, and takes the label if one is given."""
    data = recorded.checked(dict(diagnosis), "the diagnosis")
    good_label(label)
    files = recorded.contents(data, from_disk=origin == "diagnosed")
    run = recorded.digest(data)[:_ID]
    samples = list(recorded.series(data))
    walls = recorded.paces(samples).get(recorded.WALL, [])
    settings = recorded.settings(data)
    row = {
        "id": run,
        "label": label,
        "kept_at": datetime.now(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z"),
        "tool_version": str(data["tool_version"]),
        "origin": origin,
        "fingerprint": recorded.digest(settings)[:16],
        "settings": recorded.canonical(settings),
        "content": recorded.digest(sorted(files)) if all(files) else recorded.digest(data["files"]),
        "step_ns": recorded.medians({"wall": walls}).get("wall"),
        "steps": len(walls),
        "roof": _text(recorded.roof(data)),
        "contended": int(contended or recorded.contended(data)),
        "diagnosis": json.dumps(data, allow_nan=False),
    }
    with _opened(store, write=True, make=True) as db:
        before = db.execute("SELECT label FROM run WHERE id = ?", (run,)).fetchone()
        if new := before is None:
            db.execute(f"INSERT INTO run ({', '.join(row)}) VALUES ({', '.join(':' + c for c in row)})", row)
            number = db.execute("SELECT number FROM run WHERE id = ?", (run,)).fetchone()[0]
            db.executemany("INSERT INTO file VALUES (?, ?, ?, ?, ?, ?)", _file_rows(number, data, files))
            db.executemany("INSERT INTO sample VALUES (?, ?, ?, ?, ?, ?, ?)", _sample_rows(number, samples))
        elif label is not None:
            db.execute("UPDATE run SET label = ? WHERE id = ?", (label, run))
        return replace(_kept(db, run, new), renamed=before[0] if before and label not in (None, before[0]) else None)


def _file_rows(number: int, data: Mapping[str, Any], files: list[str | None]) -> Iterator[tuple[Any, ...]]:
    for i, (entry, sha) in enumerate(zip(data["files"], files, strict=True)):
        yield number, i, _text(entry["path"]), entry.get("rank"), _text(entry.get("device")), sha


def _sample_rows(number: int, samples: list[Sample]) -> Iterator[tuple[Any, ...]]:
    for s in samples:
        yield number, s.file, s.rank, s.source, s.quantity, s.step, s.ns


def _text(text: str | None) -> str | None:
    """Text that SQLite can hold: a path of bytes that are no UTF-8 keeps a question mark for each."""
    return None if text is None else text.encode("utf-8", "replace").decode()


def listed(store: str | Path | None = None, label: str | None = None, most: int | None = None) -> list[Kept]:
    """The runs of a store, the newest first; of one label, or at most so many."""
    with _opened(store) as db:
        if db is None:
            return []
        where = "WHERE label = ?" if label is not None else ""
        given = ([label] if label is not None else []) + [-1 if most is None else most]
        rows = db.execute(f"SELECT {_COLUMNS} FROM run {where} ORDER BY number DESC LIMIT ?", given).fetchall()
        return [_of_row(row, db.path) for row in rows]


def found(run: str, store: str | Path | None = None) -> Kept:
    """The run that ``run`` names: an id, the newest of a label, the start of one id, or ``latest``."""
    with _opened(store) as db:
        return _kept(db, _resolve(db, run, store))


def shown(run: str, store: str | Path | None = None) -> tuple[Kept, dict[str, Any]]:
    """The run that ``run`` names and its diagnosis."""
    with _opened(store) as db:
        kept = _kept(db, _resolve(db, run, store))
        text = db.execute("SELECT diagnosis FROM run WHERE id = ?", (kept.id,)).fetchone()[0]
    where = f"{kept.store}: run {kept.id}"
    return kept, recorded.checked(recorded.parse(text, where), where)


def samples(run: str, store: str | Path | None = None) -> list[Sample]:
    """The samples of the run that ``run`` names, in the order of its files and steps."""
    with _opened(store) as db:
        return _samples(db, _kept(db, _resolve(db, run, store)).number)


def labelled(run: str, label: str | None, store: str | Path | None = None) -> Kept:
    """Give the run a label in place of the one it has; none takes it away."""
    good_label(label)
    with _opened(store, write=True) as db:
        name = _resolve(db, run, store)
        db.execute("UPDATE run SET label = ? WHERE id = ?", (label, name))
        return _kept(db, name)


def forgotten(run: str, store: str | Path | None = None) -> Kept:
    """Delete the run; its bytes in the file are overwritten."""
    with _opened(store, write=True) as db:
        kept = _kept(db, _resolve(db, run, store))
        db.execute("DELETE FROM run WHERE id = ?", (kept.id,))
        return kept


@dataclass(frozen=True)
class Gated:
    """A gate with the two runs it is between."""

    baseline: Kept
    run: Kept
    gate: Gate


def gated(baseline: str, run: str = "latest", store: str | Path | None = None, across: bool = False) -> Gated:
    """The run against the baseline, with noise from the other runs of the baseline's fingerprint in this store."""
    with _opened(store) as db:
        a, b = (_kept(db, _resolve(db, name, store)) for name in (baseline, run))
        if a.id == b.id:
            raise QuestionError(f"{baseline!r} and {run!r} are the same run {a.id}: keep another run, or name the one to check")
        rows = db.execute(
            "SELECT number, content FROM run WHERE fingerprint = ? AND content NOT IN (?, ?) AND contended = 0"
            " ORDER BY number DESC LIMIT ?",
            (a.fingerprint, a.content, b.content, HISTORY),
        ).fetchall()
        numbers = sorted({content: number for number, content in reversed(rows)}.values())  # a recording counts once
        history = [recorded.medians(recorded.paces(_samples(db, number))) for number in numbers]
        before, after = (recorded.paces(_samples(db, kept.number)) for kept in (a, b))
    doubts = ["both are the same recording: there is nothing to compare"] if a.content == b.content else []
    return Gated(a, b, gate(before, after, history, doubts + ([] if across else _doubts(a, b))))


def _doubts(a: Kept, b: Kept) -> list[str]:
    """Why two runs should not be compared, unless the user says so."""
    found = []
    if a.fingerprint != b.fingerprint:
        parts = [part for part in a.settings if a.settings[part] != b.settings.get(part)]
        found.append(f"the fingerprints differ in {', '.join(parts)}: --across compares them all the same")
    shared = [name for name, kept in (("the baseline", a), ("the run", b)) if kept.contended]
    if shared:
        found.append(f"others used the machine during {' and '.join(shared)}: --across compares them all the same")
    return found


def good_label(label: str | None) -> None:
    """Refuse a label that could not be told from an id, or not be read."""
    if label is None:
        return
    if not 0 < len(label) <= MOST_LABEL or not label.isprintable() or label != label.strip():
        raise QuestionError(f"label {label[:100]!r}: give 1 to {MOST_LABEL} printable characters, no blanks around them")
    if label == "latest":
        raise QuestionError("label 'latest' always names the newest run: choose another")
    if len(label) == _ID and set(label) <= set("0123456789abcdef"):
        raise QuestionError(f"label {label!r} looks like a run's id: choose another")


# The file


class _Database(sqlite3.Connection):
    """A connection that knows its path."""

    path: str = ""


@contextmanager
def _opened(store: str | Path | None, write: bool = False, make: bool = False) -> Iterator[Any]:
    """The store as a connection within one transaction; None where there is no store yet and none is to be made."""
    path = Path(store) if store else default_path()
    db: _Database | None = None
    try:
        _ready(path, make)
        if not path.exists():
            yield None
            return
        db = _connected(path, write)
        db.execute("BEGIN IMMEDIATE" if write else "BEGIN")
        if not _version(db, make, write):
            db.rollback()
            yield None
            return
        yield db
        db.commit()
    except sqlite3.Error as error:
        raise _explained(error, path) from error
    except OSError as error:
        raise InputError(f"{path}: cannot be opened as a store: {error.strerror or error}") from error
    finally:
        if db is not None:
            db.close()  # rolls back what is not committed


def _ready(path: Path, make: bool) -> None:
    """Refuse what is no file; make a new store and its folder, for its user alone."""
    if "\0" in str(path):
        raise InputError(f"{str(path)!r}: not the name of a file")
    if path.exists() and not stat.S_ISREG(path.stat().st_mode):
        raise InputError(f"{path}: not a file; a store is one SQLite file")
    if make and not path.exists():
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        os.close(os.open(path, os.O_CREAT | os.O_RDWR, 0o600))  # empty: whoever writes first makes the tables


def _connected(path: Path, write: bool) -> _Database:
    """A connection that trusts nothing in the file and waits for other writers."""
    # a reader opens for writing too where it may: what a killed writer left is rolled back by whoever comes next
    mode = "rw" if write or os.access(path, os.W_OK) else "ro"
    db = sqlite3.connect(f"{path.absolute().as_uri()}?mode={mode}", uri=True, timeout=BUSY_SECONDS, isolation_level=None, factory=_Database)
    db.path = str(path)
    for pragma in ("trusted_schema = OFF", "cell_size_check = ON", "foreign_keys = ON", "secure_delete = ON"):
        db.execute(f"PRAGMA {pragma}")
    if not write:
        db.execute("PRAGMA query_only = ON")
    return db


def _version(db: _Database, make: bool, write: bool) -> bool:
    """Bring the store to this version's schema, within the transaction; False where it is empty and none is to be made."""
    version = db.execute("PRAGMA user_version").fetchone()[0]
    owner = db.execute("PRAGMA application_id").fetchone()[0]
    tables = db.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]
    if (tables or version) and owner != APPLICATION:
        raise InputError(f"{db.path}: a database of another program, not a store of runs; give another --store")
    if version > SCHEMA:
        raise InputError(
            f"{db.path}: written by a newer ironlaw (schema {version}, this one knows {SCHEMA}): update ironlaw or give another --store"
        )
    if version == SCHEMA:
        return True
    if not make and not tables:
        return False
    if not write:
        raise InputError(f"{db.path}: schema {version} of an older ironlaw; keep or label a run to bring it to {SCHEMA}")
    for step in MIGRATIONS[version:]:
        for statement in step:
            db.execute(statement)
    db.execute(f"PRAGMA application_id = {APPLICATION}")
    db.execute(f"PRAGMA user_version = {SCHEMA}")
    return True


def _explained(error: sqlite3.Error, path: Path) -> InputError:
    """What SQLite says, as one line that says what to do."""
    name = getattr(error, "sqlite_errorname", "") or ""
    told = (
        ("SQLITE_BUSY", f"another process has been writing for {BUSY_SECONDS:g} s: try again when it is done"),
        ("SQLITE_LOCKED", "another process is writing: try again when it is done"),
        ("SQLITE_NOTADB", "not an SQLite file, so no store of runs; give another --store"),
        ("SQLITE_CORRUPT", "damaged; restore a copy, or move it away and a new store is made"),
        ("SQLITE_READONLY", "cannot be written to: its permissions or its file system say read-only; give another --store"),
        ("SQLITE_CANTOPEN", "cannot be opened or made: check the folder and its permissions, or give another --store"),
        ("SQLITE_FULL", "the disk is full; nothing was kept"),
        ("SQLITE_PERM", "permission denied; give another --store"),
    )
    reason = next((text for prefix, text in told if name.startswith(prefix)), None)
    return InputError(f"{path}: {reason}" if reason else f"{path}: the store does not answer ({' '.join(str(error).split())})")


def _resolve(db: _Database | None, asked: str, store: str | Path | None) -> str:
    """The id of the run that ``asked`` names."""
    if db is None:
        path = store or default_path()
        raise QuestionError(f"no runs are kept in {path}: `ironlaw diagnose FILE --keep` or `ironlaw runs add` keeps one")
    if asked == "latest":
        rows = db.execute("SELECT id FROM run ORDER BY number DESC LIMIT 1").fetchall()
        if not rows:
            raise QuestionError(f"no runs are kept in {db.path}")
        return str(rows[0][0])
    asked = _text(asked) or ""
    for query in ("SELECT id FROM run WHERE id = ?", "SELECT id FROM run WHERE label = ? ORDER BY number DESC LIMIT 1"):
        row = db.execute(query, (asked,)).fetchone()
        if row:
            return str(row[0])
    starts = db.execute("SELECT id FROM run WHERE substr(id, 1, ?) = ? ORDER BY id", (len(asked), asked)).fetchall() if asked else []
    if len(starts) == 1:
        return str(starts[0][0])
    if starts:
        raise QuestionError(f"{asked!r} starts {len(starts)} ids ({', '.join(r[0] for r in starts[:4])}): give more digits")
    known = [name for row in db.execute("SELECT id, label FROM run") for name in row if name]
    raise UnknownNameError("run", asked, [*known, "latest"] if known else [], db.path)


def _kept(db: _Database, run: str, new: bool = False) -> Kept:
    return _of_row(db.execute(f"SELECT {_COLUMNS} FROM run WHERE id = ?", (run,)).fetchone(), db.path, new)


def _of_row(row: tuple[Any, ...], path: str, new: bool = False) -> Kept:
    fields = dict(zip(_COLUMNS.split(", "), row, strict=True))
    if any(isinstance(value, bytes) for value in row) or not isinstance(fields["step_ns"], (float, type(None))):
        raise InputError(f"{path}: run {fields['id']!r} is damaged: restore a copy, or move the store away")
    fields["settings"] = recorded.parse(fields["settings"], f"{path}: run {fields['id']}")
    return Kept(**{**fields, "contended": bool(fields["contended"])}, store=path, new=new)


def _samples(db: _Database, number: int) -> list[Sample]:
    rows = db.execute("SELECT file, rank, source, quantity, step, ns FROM sample WHERE run = ? ORDER BY rowid", (number,))
    found = [Sample(*row) for row in rows]
    if any(not isinstance(s.ns, int) or not isinstance(s.quantity, str) for s in found):
        raise InputError(f"{db.path}: the samples of run {number} are damaged: restore a copy, or move the store away")
    return found
