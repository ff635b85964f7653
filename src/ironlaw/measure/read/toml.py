"""Read TOML files of names and patterns: the shipped ones in ``data/``, and those of the user."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import tomli

from ironlaw.errors import InputError
from ironlaw.files import read_shipped
from ironlaw.measure.read.limits import open_bytes

DATA = Path(__file__).parents[1] / "data"
MOST = 1 << 20  # bytes of a user's file; the largest shipped one has 30 KB


@cache
def shipped(name: str) -> dict[str, Any]:
    """The table of a file in ``data/``; callers must not change it."""
    return tomli.loads(read_shipped(DATA / name))


def read_user_file(path: str | Path) -> dict[str, Any]:
    """The table of a user's file; InputError if it cannot be read or is not TOML."""
    with open_bytes(path, MOST) as stream:
        data = stream.read(MOST + 1)
    try:
        return tomli.loads(data.decode("utf-8"))
    except (tomli.TOMLDecodeError, UnicodeDecodeError, RecursionError) as error:
        raise InputError(f"{path}: not valid TOML: {error}") from None
