"""The tables of ``ironlaw textbook``, one module each, and the sourced numbers in their TOML files."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

from ironlaw.catalog.records import Accelerator
from ironlaw.catalog.sourced import Source, Sourced, make_sourced
from ironlaw.files import read_shipped


def read_numbers(name: str) -> tuple[dict[str, Any], dict[str, Source]]:
    """The TOML file of a table, and its sources by key."""
    numbers = tomllib.loads(read_shipped(Path(__file__).parent / f"{name}.toml"))
    sources = numbers.pop("sources")
    return numbers, {key: Source(key, s["title"], s["url"], str(s["read"]), s["grade"]) for key, s in sources.items()}


def sourced(value: float, unit: str, text: str, source: Source, note: str = "") -> Sourced:
    """A number of a TOML file with its source."""
    return make_sourced(float(value), unit, text, source, note)


def dense_peak(accelerator: Accelerator) -> Sourced:
    """The dense bf16 rate of an accelerator, or its fp16 or fp32 rate where it has none."""
    return next(accelerator.peak[name] for name in ("bf16", "fp16", "fp32") if name in accelerator.peak)
