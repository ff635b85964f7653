"""Launch files of other frameworks as options of ``ironlaw.estimate``: one row a framework."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ironlaw.errors import QuestionError
from ironlaw.files import read_text
from ironlaw.frozen import Frozen


class Reader(Frozen):
    """How to recognise a framework's launch file, and the function that reads it."""

    framework: str
    suffixes: tuple[str, ...]
    mark: str  # a regular expression that the text of such a file matches; the first row that fits reads the file
    read: Callable[[str, int | None, str], tuple[dict[str, Any], list[str]]]  # (text, gpus, on) -> options, rules applied


def read_megatron(text: str, gpus: int | None, on: str) -> tuple[dict[str, Any], list[str]]:
    """Read a launch script of Megatron-LM; only a question with such a file pays for the import."""
    from ironlaw.launch.megatron.options import options_from_script

    return options_from_script(text, gpus, on)


READERS = (Reader("Megatron-LM", (".sh", ".args"), "", read_megatron),)


def read_launch_file(path: Path, gpus: int | None, on: str | None) -> tuple[dict[str, Any], list[str]] | None:
    """The options in a launch file and the rules applied to read them; None for a file of no known framework."""
    readers = [reader for reader in READERS if path.suffix in reader.suffixes]
    text = read_text(path, "a launch file") if readers else ""
    reader = next((reader for reader in readers if re.search(reader.mark, text, re.MULTILINE)), None)
    if reader is None:
        return None
    if on is None:
        raise QuestionError(f"{path.name} does not name the accelerator: give --on ACCELERATOR (and --gpus N)")
    return reader.read(text, gpus, on)
