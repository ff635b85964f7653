"""Export a stored run as a file for others, and import such a file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ironlaw.errors import InputError, QuestionError, quote
from ironlaw.measure.runs import saved_diagnosis, store
from ironlaw.measure.runs.redact import redact_diagnosis

FORMAT = 1


def export_run(run: str, path: str | Path | None = None, redact: bool = False, names: Sequence[str] = ()) -> dict[str, Any]:
    """A stored run as one JSON object. A redacted one has neither a label nor the time at which it was stored."""
    stored, diagnosis = store.load_run(run, path)
    private: dict[str, Any] = {"label": stored.label, "kept_at": stored.kept_at}
    if redact:
        private, diagnosis = {"label": None, "kept_at": None}, redact_diagnosis(diagnosis, names)
    return {"ironlaw_run": FORMAT, "tool_version": stored.tool_version, "redacted": redact, "contended": stored.contended, **private} | {
        "diagnosis": diagnosis
    }


def import_run(file: str | Path, label: str | None = None, path: str | Path | None = None) -> store.StoredRun:
    """Store the run in ``file``, under ``label`` or the label it was exported with."""
    where = str(file)
    diagnosis, exported_label, contended = read_export(saved_diagnosis.read_diagnosis(file), where)
    return store.save_run(diagnosis, label if label is not None else exported_label, path, origin="imported", contended=contended)


def read_export(data: Mapping[str, Any], where: str) -> tuple[dict[str, Any], str | None, bool]:
    """The diagnosis of an exported run, its label, and whether others used the machine."""
    version = data.get("ironlaw_run")
    if version is None:
        raise InputError(f"{where}: not an exported run (no key ironlaw_run); store a diagnosis with `ironlaw runs add`")
    if version != FORMAT or isinstance(version, bool):
        raise InputError(f"{where}: export format {str(version)[:20]!r}, this ironlaw reads {FORMAT}: update ironlaw")
    label = data.get("label")
    if label is not None and not isinstance(label, str):
        raise InputError(f"{where}: label is {quote(label)}, not text")
    try:
        store.check_label(label)
    except QuestionError as error:
        raise InputError(f"{where}: {error}") from None
    return saved_diagnosis.check_diagnosis(data.get("diagnosis"), where), label, data.get("contended") is True
