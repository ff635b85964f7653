"""A kept run as a file for somebody else, and such a file kept here."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ironlaw.errors import InputError, QuestionError
from ironlaw.measure.runs import recorded, store
from ironlaw.measure.runs.redact import redacted

FORMAT = 1


def exported(run: str, path: str | Path | None = None, redact: bool = False, names: Sequence[str] = ()) -> dict[str, Any]:
    """The run as one JSON object that ``imported`` reads; a redacted one says neither its label nor when it was kept."""
    kept, diagnosis = store.shown(run, path)
    told: dict[str, Any] = {"label": kept.label, "kept_at": kept.kept_at}
    if redact:
        told, diagnosis = {"label": None, "kept_at": None}, redacted(diagnosis, names)
    return {"ironlaw_run": FORMAT, "tool_version": kept.tool_version, "redacted": redact, "contended": kept.contended, **told} | {
        "diagnosis": diagnosis
    }


def imported(file: str | Path, label: str | None = None, path: str | Path | None = None) -> store.Kept:
    """Keep the run that ``file`` holds, under ``label`` or the one it was exported with."""
    where = str(file)
    diagnosis, told, contended = read_export(recorded.read(file), where)
    return store.keep(diagnosis, label if label is not None else told, path, origin="imported", contended=contended)


def read_export(data: Mapping[str, Any], where: str) -> tuple[dict[str, Any], str | None, bool]:
    """The diagnosis of an exported run, its label, and whether its machine was shared."""
    version = data.get("ironlaw_run")
    if version is None:
        raise InputError(f"{where}: not an exported run (no ironlaw_run); a diagnosis is kept with `ironlaw runs add`")
    if version != FORMAT or isinstance(version, bool):
        raise InputError(f"{where}: exported in format {str(version)[:20]!r}, and this ironlaw reads {FORMAT}: update ironlaw")
    label = data.get("label")
    if label is not None and not isinstance(label, str):
        raise InputError(f"{where}: label is not text")
    try:
        store.good_label(label)
    except QuestionError as error:
        raise InputError(f"{where}: {error}") from None
    return recorded.checked(data.get("diagnosis"), where), label, data.get("contended") is True
