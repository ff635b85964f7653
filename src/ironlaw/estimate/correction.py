"""A factor on step time from the user's own runs: ``validate --mine`` writes it, ``--correction`` applies it."""

from __future__ import annotations

import contextlib
import json
import os
from datetime import date
from pathlib import Path
from typing import Any

import numpy as np

from ironlaw.errors import InputError, QuestionError
from ironlaw.files import read_toml
from ironlaw.frozen import Frozen

LEAST_ROWS = 3  # fewer runs do not determine a factor
_MAX_BYTES = 100_000
_FACTOR, _HALF_WIDTH = (0.1, 10.0), (0.0, 3.0)


class Correction(Frozen):
    """A factor on step time, its half-width in log at 80 %, and where it comes from."""

    factor: float
    half_width: float
    label: str


def write_correction(path: Path, errors: Any, source: Path) -> float:
    """Write the factor that makes the median of predicted / measured equal to 1, and its spread; a failed write leaves no file.

    Refuses to overwrite a file that is no correction, and to write one that ``read_correction`` would refuse.
    """
    logs = -np.log1p(np.asarray(errors, dtype=np.float64))
    factor = float(np.exp(np.median(logs)))
    spread = float(np.quantile(np.abs(logs - np.median(logs)), 0.8))
    if not _FACTOR[0] <= factor <= _FACTOR[1] or spread > _HALF_WIDTH[1]:
        raise QuestionError(
            f"{source.name}: steps take {factor:.3g} times their prediction, within a factor of {np.exp(min(spread, 700.0)):.3g}:"
            f" too far for a correction: check the units; a factor must be from {_FACTOR[0]:g} to {_FACTOR[1]:g}"
        )
    if path.is_file() and not _replaceable(path):
        raise QuestionError(f"--correction {path}: the file exists and is not a correction file: give another name")
    label = "".join(c if c.isprintable() else "?" for c in source.name)
    text = (
        "# Written by ironlaw validate --mine: measured over predicted step time of your own runs.\n"
        f"label = {json.dumps(f'{label}, {logs.size} runs, {date.today().isoformat()}', ensure_ascii=False)}\n"
        f"factor = {factor:.4f}  # measured over predicted step time, median\n"
        f"half_width = {max(spread, 0.01):.4f}  # in log, holds for 80 % of these runs\n"
        f"rows = {logs.size}\n"
    )
    if path.is_dir() or not path.name:
        raise InputError(f"{path}: cannot be written: a folder")
    temporary = path.with_name(path.name + ".part")
    try:
        temporary.write_text(text, encoding="utf-8")
        os.replace(temporary, path)
    except OSError as error:
        with contextlib.suppress(OSError):
            temporary.unlink()
        raise InputError(f"{path}: cannot be written: {error.strerror}") from None
    return factor


def _replaceable(path: Path) -> bool:
    """True for a file that is an earlier correction, or empty."""
    try:
        return path.stat().st_size == 0 or bool(read_correction(str(path)))
    except (OSError, InputError):
        return False


def read_correction(path: str) -> Correction:
    """The correction of a file; InputError names what is wrong with it."""
    file = Path(path)
    table = read_toml(file, "correction", _MAX_BYTES)
    numbers = {}
    for name, low, high in (("factor", *_FACTOR), ("half_width", *_HALF_WIDTH)):
        value = table.get(name)
        if not isinstance(value, (int, float)) or isinstance(value, bool) or not low <= value <= high:
            raise InputError(f"{file}: {name} is {value!r}, must be a number from {low:g} to {high:g} (ironlaw validate --mine writes it)")
        numbers[name] = float(value)
    return Correction(numbers["factor"], numbers["half_width"], str(table.get("label", file.name)))
