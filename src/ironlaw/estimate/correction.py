"""A user's own runs, as one factor on step time: written by ``validate --mine``, used only where an estimate asks for it."""

from __future__ import annotations

import json
import os
import tomllib
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Any

import numpy as np

from ironlaw.errors import InputError

LEAST_ROWS = 3  # fewer runs say more about themselves than about a site
_MAX_BYTES = 100_000


@dataclass(frozen=True)
class Correction:
    """A factor on step time, its half-width in log at 80 %, and where it comes from."""

    factor: float
    half_width: float
    label: str


def write_correction(path: Path, errors: Any, source: Path) -> float:
    """Write the factor that makes the median of predicted / measured one, beside its spread; whole or not at all."""
    logs = -np.log1p(np.asarray(errors, dtype=np.float64))
    factor = float(np.exp(np.median(logs)))
    spread = float(np.quantile(np.abs(logs - np.median(logs)), 0.8))
    text = (
        "# Written by ironlaw validate --mine: what your own runs say of the level of your estimates.\n"
        f"label = {json.dumps(f'{source.name}, {logs.size} runs, {date.today().isoformat()}')}\n"
        f"factor = {factor:.4f}  # measured over predicted step time, median\n"
        f"half_width = {max(spread, 0.01):.4f}  # in log, holds for 80 % of these runs\n"
        f"rows = {logs.size}\n"
    )
    temporary = path.with_name(path.name + ".part")
    try:
        temporary.write_text(text, encoding="utf-8")
        os.replace(temporary, path)
    except OSError as error:
        temporary.unlink(missing_ok=True)
        raise InputError(f"{path}: cannot be written: {error.strerror}") from None
    return factor


def read_correction(path: str) -> Correction:
    """The correction of a file; InputError names what is wrong with it."""
    file = Path(path)
    try:
        if file.stat().st_size > _MAX_BYTES:
            raise InputError(f"{file}: {file.stat().st_size} bytes is no correction")
        table = tomllib.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise InputError(f"{file}: cannot be read: {error.strerror}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InputError(f"{file}: not valid TOML: {error}") from None
    numbers = {}
    for name, low, high in (("factor", 0.1, 10.0), ("half_width", 0.0, 3.0)):
        value = table.get(name)
        if not isinstance(value, (int, float)) or isinstance(value, bool) or not low <= value <= high:
            raise InputError(f"{file}: {name} is {value!r}, must be a number from {low:g} to {high:g} (ironlaw validate --mine writes it)")
        numbers[name] = float(value)
    return Correction(numbers["factor"], numbers["half_width"], str(table.get("label", file.name)))
