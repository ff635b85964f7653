"""The documents of a question: a named distribution, a record of the catalogue, or a file of lengths."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path

from ironlaw import units
from ironlaw.catalog import load
from ironlaw.catalog.records import Lengths
from ironlaw.errors import CatalogError, InputError, UnknownNameError
from ironlaw.estimate.documents.histogram import Histogram
from ironlaw.estimate.documents.read import histogram_of, read_file
from ironlaw.estimate.documents.specs import is_spec, read_spec
from ironlaw.files import is_there
from ironlaw.job import Documents
from ironlaw.question.asked import Asked
from ironlaw.question.assumptions import Assumptions, assume

SUFFIXES = (".json", ".jsonl", ".csv", ".txt", ".tsv")  # a text with one of these is a file, also where there is none


def bind_documents(asked: Asked, folders: tuple[str, ...], notes: Assumptions) -> Documents | None:
    """The documents of a question; None where it gives no lengths. What was read is added to ``notes``."""
    if asked.lengths is None:
        return None
    lengths, title = lengths_named(asked.lengths, folders)
    assume(notes, "documents", f"{title}: {words_of(lengths)}", "default")
    for name in ("packing", "balance", "cp_by_length"):
        if name not in asked.given:
            assume(notes, name, getattr(asked, name) or "off", "default")
    return Documents(lengths, title, asked.packing, asked.balance, asked.cp_by_length)


def lengths_named(text: str, folders: tuple[str, ...] = ()) -> tuple[Histogram, str]:
    """The distribution that a text names, and what it is."""
    if is_spec(text):
        return read_spec(text), text
    path = Path(text)
    if path.suffix.lower() in SUFFIXES or "/" in text:
        if not is_there(path):
            raise InputError(f"--lengths {text}: no such file")
        try:
            status = path.stat()
        except OSError as error:
            raise InputError(f"--lengths {text}: cannot be read: {error.strerror}") from None
        return _of_file(str(path.absolute()), status.st_mtime_ns, status.st_size), text
    try:
        record = load.record("lengths", text, folders)
    except UnknownNameError as error:
        known = [*load.names("lengths", folders), "fixed:2048", "lognormal:median=800,sigma=1.1"]
        raise UnknownNameError("--lengths", text, known) from error
    return of_record(record), record.title


@lru_cache(maxsize=16)
def _of_file(path: str, changed: int, size: int) -> Histogram:
    """The distribution in a file, read once until the file changes."""
    del changed, size
    return read_file(Path(path))


@lru_cache(maxsize=64)
def of_record(record: Lengths) -> Histogram:
    """The distribution of a record: by name, by counts of each length, or by buckets."""
    if record.spec:
        return read_spec(record.spec, f"spec of {record.name}")
    rows: list[tuple[str, tuple[float, ...]]] = []
    try:
        for line in record.counts:
            first, _, counts = line.partition(":")
            rows += [(line[:20], (float(first) + at, float(count))) for at, count in enumerate(counts.split())]
        for place, documents in record.buckets.items():
            low, _, high = place.partition("..")
            rows.append((place, (float(low), float(high), float(documents.value))))
    except ValueError as error:
        raise CatalogError(f"lengths {record.name}: {error}") from None
    return histogram_of(rows, f"lengths {record.name}")


def words_of(lengths: Histogram) -> str:
    """A distribution in words: mean, median, 95th percentile, longest."""
    middle, high = (float(lengths.quantile(share)) for share in (0.5, 0.95))
    return (
        f"mean {units.amount(lengths.mean)}, median {units.amount(middle)}, 95% up to {units.amount(high)},"
        f" longest {units.amount(lengths.longest)} tokens"
    )
