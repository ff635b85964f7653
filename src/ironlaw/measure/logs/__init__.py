"""Readers of training logs and of benchmarks of collectives. The content of a file decides its format, never its name.

Each format is a row of ``measure/data/logs.toml``: how its lines are read, or the module that reads them, with the SIGNS that recognise it
and ``read``. If a log has lines of two formats, the first in the table is taken: Megatron-LM over DeepSpeed prints both, and Megatron's
lines have the times.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from importlib import import_module
from pathlib import Path

from ironlaw.errors import InputError
from ironlaw.measure.logs import trainer_state
from ironlaw.measure.logs.formats import Format, read_by_table, table
from ironlaw.measure.logs.log import MOST, Calls, Log, Notes, lines, states
from ironlaw.measure.read.limits import open_bytes

__all__ = ["FORMATS", "HEAD", "Calls", "Log", "read_log", "recognise"]

HEAD = 4 << 20  # bytes searched: imports, environments and arguments of hundreds of ranks come before the first iteration


def _reader(form: Format) -> tuple[tuple[re.Pattern[bytes], ...], Callable[[str, Notes], Log]]:
    """The signs and the reader of a format: those of its module, or of its row of the table."""
    if form.module == trainer_state.__name__.rpartition(".")[2]:
        return trainer_state.SIGNS, lambda _path, notes: trainer_state.read_file(notes)
    if not form.module:
        stream = states if form.overwrites else lines
        return (form.sign,), lambda path, notes: read_by_table(form, stream(path, notes), notes)
    module = import_module(f"{__name__}.{form.module}")
    stream = states if getattr(module, "OVERWRITES", False) else lines

    def read(path: str, notes: Notes) -> Log:
        log: Log = module.read(stream(path, notes), notes)
        return log

    return module.SIGNS, read


_READERS = {form.name: _reader(form) for form in table()}
FORMATS: dict[str, Callable[[str, Notes], Log]] = {name: read for name, (_, read) in _READERS.items()}
_SIGNS: dict[str, tuple[re.Pattern[bytes], ...]] = {name: signs for name, (signs, _) in _READERS.items()}


def recognise(head: bytes) -> str | None:
    """Recognise the format of a log by its first bytes (``HEAD`` of them are enough); None if no format matches.

    >>> recognise(b" iteration 1/ 10 | elapsed time per iteration (ms): 3.1 |"), recognise(b"PK")
    ('megatron', None)
    """
    for round_ in range(max(len(signs) for signs in _SIGNS.values())):  # iteration lines first, then the lines before them
        for name, signs in _SIGNS.items():
            if round_ < len(signs) and signs[round_].search(head):
                return name
    return None


def read_log(path: str | Path) -> Log:
    """Read the log at ``path``; InputError if its format is unknown or it cannot be read."""
    with open_bytes(path, MOST) as stream:
        head = stream.read(HEAD)
    form = recognise(head)
    if form is None:
        raise InputError(f"{path}: not a log of a known format ({', '.join(FORMATS)}); is the file cut, or a trace?")
    log = FORMATS[form](str(path), Notes(str(path)))
    if not len(log) and (log.calls is None or not len(log.calls)) and not log.claims:
        raise InputError(f"{path}: a {form} log without any step time; was it cut before the first iteration?")
    return log
