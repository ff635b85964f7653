"""Read a user's text and TOML files; an error names the file and what is wrong with it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ironlaw.errors import InputError


def read_text(path: Path, kind: str, limit: int = 1_000_000) -> str:
    """The text of a file; InputError where it cannot be read, or has more bytes than a file of its ``kind`` may have."""
    try:
        if path.stat().st_size > limit:
            raise InputError(f"{path}: {path.stat().st_size:,} bytes is too large for a {kind} (limit {limit:,})")
        return path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{path}: cannot be read: {getattr(error, 'strerror', None) or error}") from None


def read_toml(path: Path, kind: str, limit: int = 1_000_000) -> dict[str, Any]:
    """The table of a TOML file; InputError where it cannot be read or is not TOML."""
    import tomli

    text = read_text(path, kind, limit)
    try:
        return tomli.loads(text)
    except (tomli.TOMLDecodeError, RecursionError) as error:
        raise InputError(f"{path}: not valid TOML: {error}") from None
