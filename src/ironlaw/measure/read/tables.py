"""Read tables of an untrusted SQLite file in chunks, within limits, without executing anything in the file.

The file is opened read-only and immutable: no journal is replayed and no lock taken. Only tables requested by name can be read; SQLite's
authorizer refuses views, functions, triggers and everything else, and a progress handler stops queries that take too long.
"""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Iterator, Sequence
from itertools import chain
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ironlaw.errors import InputError
from ironlaw.files import open_file
from ironlaw.measure.events import NONE
from ironlaw.measure.read.limits import Deadline, open_bytes, printable

MAGIC = b"SQLite format 3\0"
ROWS = 40_000_000  # of all tables read together
CELL = 16 << 20  # bytes of one value or row
TEXTS = 1 << 30  # characters of all texts
NAME = 1 << 16  # characters of one text; the rest is cut
CHUNK = 1 << 16
TABLES = 5000

FAILS = (sqlite3.Error, UnicodeError, OverflowError)  # UnicodeError: messages of SQLite quote the file

Columns = dict[str, NDArray[np.int64]]
Texts = dict[str, list[str | None]]

_PLAIN_TABLE = re.compile(r"\s*CREATE\s+TABLE\b", re.IGNORECASE)
_READS = {sqlite3.SQLITE_SELECT, sqlite3.SQLITE_READ, sqlite3.SQLITE_PRAGMA}


class Database:
    """An open SQLite file; every error names its ``path``."""

    def __init__(self, path: str | Path, seconds: float = 600.0) -> None:
        self.path, self.deadline, self.rows, self.text = path, Deadline(path, seconds), 0, 0
        with open_bytes(path) as stream:  # a folder, a FIFO or an empty file gives a clear error there
            if stream.read(len(MAGIC)) != MAGIC:
                raise InputError(f"{path}: not an SQLite database; give a file from `nsys export --type sqlite`")
        with open_file(path) as file:
            if file.read(len(MAGIC)) != MAGIC:
                raise InputError(f"{path}: a compressed SQLite database; unpack it")
        self.allowed: set[str] = {"sqlite_master"}
        try:
            self._open()
            self.tables = self._plain_tables()
        except FAILS as error:
            self.close()
            raise self._explain(error) from None
        except InputError:
            self.close()
            raise

    def _open(self) -> None:
        """Open the file read-only, with limits that keep it from running code."""
        address = Path(self.path).resolve().as_uri() + "?mode=ro&immutable=1"
        self.connection = sqlite3.connect(address, uri=True, isolation_level=None, timeout=0.0)
        c = self.connection
        c.text_factory = lambda raw: raw.decode("utf-8", "replace")
        c.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, CELL)
        c.setlimit(sqlite3.SQLITE_LIMIT_SQL_LENGTH, 1 << 20)
        c.setlimit(sqlite3.SQLITE_LIMIT_ATTACHED, 0)
        c.setlimit(sqlite3.SQLITE_LIMIT_EXPR_DEPTH, 100)
        for pragma in ("trusted_schema=OFF", "query_only=ON", "cell_size_check=ON", "mmap_size=0", "cache_size=-16384"):
            c.execute(f"PRAGMA {pragma}")
        c.set_progress_handler(lambda: self.deadline.passed, 20_000)
        c.set_authorizer(self._authorize)

    def _authorize(self, action: int, first: str | None, _second: str | None, _base: str | None, inner: str | None) -> int:
        """Allow reading a requested table and its list of columns, but not from within a view."""
        if action not in _READS or inner is not None:
            return sqlite3.SQLITE_DENY
        if action == sqlite3.SQLITE_READ and first not in self.allowed:
            return sqlite3.SQLITE_DENY
        if action == sqlite3.SQLITE_PRAGMA and first != "table_info":
            return sqlite3.SQLITE_DENY
        return sqlite3.SQLITE_OK

    def __enter__(self) -> Database:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """Close the file."""
        if hasattr(self, "connection"):
            self.connection.close()

    def _explain(self, error: Exception) -> InputError:
        if self.deadline.passed:
            return InputError(f"{self.path}: not read within {self.deadline.seconds:g} s; export fewer steps")
        return InputError(f"{self.path}: the SQLite database cannot be read: {printable(error)}; export it again")

    def _plain_tables(self) -> dict[str, tuple[str, ...]]:
        """The real tables; views and virtual tables are left out, because they would run code."""
        entries = self.connection.execute("SELECT type, name, sql FROM sqlite_master").fetchmany(TABLES + 1)
        if len(entries) > TABLES:
            raise InputError(f"{self.path}: more than {TABLES} tables and views; not an export of Nsight Systems")
        plain = [n for t, n, sql in entries if t == "table" and isinstance(n, str) and isinstance(sql, str) and _PLAIN_TABLE.match(sql)]
        self.refused = {n for t, n, _ in entries if isinstance(n, str) and t in ("table", "view")} - set(plain)
        return dict.fromkeys(plain, ())

    def columns(self, table: str) -> tuple[str, ...]:
        """The columns of ``table``; empty if it does not exist."""
        if table in self.refused:
            raise InputError(f"{self.path}: {table} is a view or a virtual table, which an export of Nsight Systems never has: refused")
        if table not in self.tables:
            return ()
        if not self.tables[table]:
            try:
                rows = self.connection.execute(f"PRAGMA table_info({_quoted(table)})").fetchall()
            except FAILS as error:
                raise self._explain(error) from None
            self.tables[table] = tuple(str(row[1]) for row in rows)
        return self.tables[table]

    def chunks(self, table: str, texts: Sequence[str], numbers: Sequence[str] = ()) -> Iterator[list[tuple[Any, ...]]]:
        """Yield rows of ``table`` in chunks, in stored order; in the columns ``numbers``, which come first, NULL is NONE."""
        self.allowed.add(table)
        try:
            columns = [f"CASE WHEN {_quoted(n)} IS NULL THEN {NONE} ELSE {_quoted(n)} END" for n in numbers] + list(map(_quoted, texts))
            cursor = self.connection.execute(f"SELECT {', '.join(columns)} FROM {_quoted(table)} NOT INDEXED")
            while rows := cursor.fetchmany(CHUNK):
                self.rows += len(rows)
                if self.rows > ROWS:
                    raise InputError(f"{self.path}: more than {ROWS} rows; export fewer steps or ranks")
                self.deadline.check()
                yield rows
        except FAILS as error:
            raise self._explain(error) from None

    def integers(self, table: str, names: Sequence[str], texts: Sequence[str] = ()) -> tuple[Columns, Texts]:
        """Read columns of whole numbers as int64 (NULL as NONE) and columns of text as lists; missing columns are left out."""
        have = self.columns(table)
        numbers, words = [c for c in names if c in have], [c for c in texts if c in have]
        pieces: list[NDArray[np.int64]] = []
        text_values: Texts = {c: [] for c in words}
        seen: dict[str, str] = {}  # most texts of a column repeat
        if numbers or words:
            for rows in self.chunks(table, words, numbers):
                pieces.append(self._to_integers(table, numbers, [row[: len(numbers)] for row in rows] if words else rows))
                for i, name in enumerate(words, len(numbers)):
                    text_values[name].extend(self.share_text(row[i], seen) for row in rows)
        cells = np.concatenate(pieces) if pieces else np.empty((0, len(numbers)), np.int64)
        return {name: np.ascontiguousarray(cells[:, i]) for i, name in enumerate(numbers)}, text_values

    def _to_integers(self, table: str, names: list[str], rows: list[tuple[Any, ...]]) -> NDArray[np.int64]:
        """Rows as an array of int64; InputError where a cell is no whole number."""
        if set(map(type, chain.from_iterable(rows))) - {int}:
            column, value = next((n, v) for row in rows for n, v in zip(names, row, strict=True) if type(v) is not int)
            raise InputError(f"{self.path}: {column} of {table} is {value!r:.40}, not a whole number")
        count = len(rows) * len(names)
        return np.fromiter(chain.from_iterable(rows), np.int64, count).reshape(len(rows), len(names))

    def share_text(self, value: Any, texts: dict[str, str]) -> str | None:
        """A text from the file, stored once in ``texts`` and counted; None for anything else."""
        if not isinstance(value, str):
            return None
        value = value[:NAME]
        if value not in texts:
            self.text += len(value) + 100
            if self.text > TEXTS:
                raise InputError(f"{self.path}: more than {TEXTS} bytes of names; export fewer steps")
            texts[value] = value
        return texts[value]


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'
