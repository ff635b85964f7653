"""Readers of training logs and of benchmarks of collectives. The content of a file decides its format, never its name.

Each format is a module with its NAME, the SIGNS that recognise it, and ``read`` for lines or ``read_file`` for a whole document. If a log
has lines of two formats, the first in FORMATS is taken: Megatron-LM over DeepSpeed prints both, and Megatron's lines have the times.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

from ironlaw.errors import InputError
from ironlaw.measure.logs import (
    all_reduce_bench,
    deepspeed,
    llm_c,
    maxtext,
    megatron,
    mlperf,
    modded_nanogpt,
    nanogpt,
    nccl_tests,
    plain,
    torchtitan,
    torchtune,
    trainer_output,
    trainer_state,
)
from ironlaw.measure.logs.log import MOST, Calls, Log, Notes, lines, states
from ironlaw.measure.read.limits import open_bytes

__all__ = ["FORMATS", "HEAD", "Calls", "Log", "read_log", "recognise"]

HEAD = 4 << 20  # bytes searched: imports, environments and arguments of hundreds of ranks come before the first iteration

_LINES = (
    mlperf, megatron, torchtitan, torchtune, maxtext, modded_nanogpt, llm_c, nanogpt, deepspeed, trainer_output, nccl_tests,
    all_reduce_bench, plain,
)  # fmt: skip


def _streamed(module: object) -> Callable[[str, Notes], Log]:
    """A reader of a path, from a module that reads lines, or all states of lines that are overwritten."""
    stream = states if getattr(module, "OVERWRITES", False) else lines

    def read(path: str, notes: Notes) -> Log:
        log: Log = module.read(stream(path, notes), notes)  # type: ignore[attr-defined]
        return log

    return read


FORMATS: dict[str, Callable[[str, Notes], Log]] = {
    trainer_state.NAME: lambda _path, notes: trainer_state.read_file(notes),
    **{module.NAME: _streamed(module) for module in _LINES},
}
_SIGNS: dict[str, tuple[re.Pattern[bytes], ...]] = {module.NAME: module.SIGNS for module in (trainer_state, *_LINES)}


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
