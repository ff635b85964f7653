"""Logs of llm.c: a table of the configuration, then one line per step.

    step   61/74 | loss 3.208939 (+nanz)| norm 1.4800 (+nanz)| lr 3.00e-04 | 44.57 ms | -100.0% bf16 MFU | 91886 tok/s

``nanz`` is a z-score that needs more steps, not a nan of the loss. An MFU of -100 means that llm.c does not know the device.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from ironlaw.cautions.table import caution
from ironlaw.measure.logs.log import Log, Notes, Rows, number, ranked

NAME = "llm.c"
SIGNS = (
    re.compile(rb"step\s+\d+/\d+ \| loss \S+ [^\n]{0,120}\| [\d.]+ ms \|[^\n]{0,40}tok/s"),
    re.compile(rb"\| num_layers L\s+\| \d+[^\n]*\r?\n\| num_heads NH\s+\| \d+"),
)
_STEP = re.compile(r"\bstep\s+(\d{1,12})/\d+ \| (?:train )?loss (\S+) .*?\| ([\d.]+) ms \|(?: (-?[\d.]+)% (\w+) MFU \|)? ([\d.]+) tok/s")
_BATCH = re.compile(r"num_processes=(\d{1,9}) and total_batch_size=(\d{1,12})")
_NAMES = {"num_layers L": "num_layers", "num_heads NH": "num_attention_heads", "channels C": "hidden_size",
          "padded_vocab_size Vp": "padded_vocab_size", "sequence length T": "seq_length", "num_processes": "world_size",
          "precision": "dtype"}  # fmt: skip


def read(text: Iterable[str], notes: Notes) -> Log:
    """Read the lines of an llm.c log."""
    rows = Rows(notes)
    for whole_line in text:
        rank, line = ranked(whole_line)
        if match := _STEP.search(line):
            _step(match, rank, rows)
        elif line.startswith("| "):
            _table(line, notes)
        elif match := _BATCH.search(line):
            notes.argument("world_size", match[1])
            notes.argument("tokens_per_iteration", match[2])
    return rows.log(NAME, tokens_of="job")


def _table(line: str, notes: Notes) -> None:
    """Read a row of the configuration table: ``| name | value |``."""
    parts = [part.strip() for part in line.split("|")]
    if len(parts) != 4:
        return
    name, value = parts[1], parts[2]
    if name == "device":
        notes.device_name = notes.device_name or value[:200]
    elif name == "peak TFlops":
        if (number(value) or 0.0) > 0:  # -1 for a device llm.c does not know
            notes.claims["peak"] = (number(value) or 0.0) * 1e12
    else:
        notes.argument(_NAMES.get(name, name), value)


def _step(match: re.Match[str], rank: int | None, rows: Rows) -> None:
    """Add one step line as a row."""
    seconds = number(match[3])
    if seconds is None or seconds <= 0:
        rows.notes.skipped["a step line without its time"] += 1
        return
    unusual = "loss is nan" if "nan" in match[2].lower() else ""
    rows.add(int(match[1]), seconds / 1e3, rank=rank, unusual=unusual, loss=number(match[2]), tokens_per_second=number(match[6]))
    mfu = number(match[4])
    if mfu is not None and mfu > 0:
        rows.notes.claims["mfu"] = mfu / 100.0
    elif mfu is not None:
        rows.notes.warn(caution("llm-c-prints-no-mfu"))
    if match[5]:
        rows.notes.argument("dtype", match[5])
