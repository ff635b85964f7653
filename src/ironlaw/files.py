"""Read a user's text, TOML and JSON files; an error names the file and what is wrong with it."""

from __future__ import annotations

import errno
from typing import TYPE_CHECKING, Any

from ironlaw.errors import InputError

if TYPE_CHECKING:
    from pathlib import Path

_NO_SUCH_NAME = (errno.ENOENT, errno.ENOTDIR, errno.ENAMETOOLONG, errno.ELOOP)


def is_there(path: Path, follow: bool = True) -> bool:
    """True where a file or folder has this path, or a link that is not followed; InputError where that cannot be seen."""
    try:
        path.stat(follow_symlinks=follow)
    except OSError as error:
        if error.errno in _NO_SUCH_NAME:
            return False
        raise InputError(f"{path}: cannot be read: {error.strerror}") from None
    except ValueError:  # a null character
        return False
    return True


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


def read_json(path: Path, kind: str, limit: int, deepest: int = 64) -> Any:
    """The values of a JSON file of at most ``limit`` bytes and ``deepest`` levels; InputError where it cannot be read or is not JSON."""
    import json

    def refuse(word: str) -> Any:
        raise ValueError(f"{word} is not a JSON number")

    try:
        with path.open("rb") as file:  # a pipe has no size before it is read
            text = file.read(limit + 1)
        if len(text) > limit:
            raise InputError(f"{path}: more than {limit:,} bytes, too large for {kind}")
        tree = json.loads(text.decode("utf-8-sig"), parse_constant=refuse)
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror}") from None
    except RecursionError:
        raise InputError(f"{path}: nested deeper than {deepest} levels, not {kind}") from None
    except ValueError as error:  # not UTF-8, not JSON, or a number of thousands of digits
        raise InputError(f"{path}: not JSON: {error}") from None
    level = [tree]
    for _ in range(deepest):
        level = [item for node in level for item in (node.values() if isinstance(node, dict) else node if isinstance(node, list) else ())]
        if not level:
            return tree
    raise InputError(f"{path}: nested deeper than {deepest} levels, not {kind}")
