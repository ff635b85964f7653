"""The tables of ``ironlaw lessons --table``, a module each, and the sourced numbers some of them stand on."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

from ironlaw.catalog.sourced import Source, Sourced


def numbers(name: str) -> tuple[dict[str, Any], dict[str, Source]]:
    """The TOML file of a table, and its sources by key."""
    found = tomllib.loads((Path(__file__).parent / f"{name}.toml").read_text(encoding="utf-8"))
    sources = found.pop("sources")
    return found, {key: Source(key, s["title"], s["url"], str(s["read"]), s["grade"]) for key, s in sources.items()}


def sourced(value: float, unit: str, text: str, source: Source, note: str = "") -> Sourced:
    """A number of such a file, as it was written."""
    return Sourced(float(value), unit, text, source, note)
