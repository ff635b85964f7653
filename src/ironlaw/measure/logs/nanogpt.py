"""Logs of nanoGPT.

    iter 10: loss 3.2202, time 893.76ms, mfu 16.68%
    step 250: train loss 1.5440, val loss 1.7220

The time of the iteration after an evaluation includes the evaluation. The printed MFU divides by the bf16 peak of an A100 on every device.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from ironlaw.cautions.table import caution
from ironlaw.measure.logs.log import Log, Notes, Rows, number, ranked, whole

NAME = "nanogpt"
SIGNS = (re.compile(rb"\biter \d+: loss \S+, time [\d.]+ms"),)
A100_PEAK = 312e12  # what nanoGPT's model.py divides by
_ITER = re.compile(r"\biter (\d{1,12}): loss (\S+), time ([\d.,]+)ms(?:, mfu (-?[\d.]+)%)?")
_EVALUATION = re.compile(r"\bstep (\d{1,12}): train loss \S+, val loss \S+")
_TOKENS = re.compile(r"tokens per iteration will be: ([\d,]+)")
_PARAMETERS = re.compile(r"number of parameters: ([\d.]+)M")
_CONFIG = re.compile(
    r"^(?:Overriding: )?(n_layer|n_head|n_embd|block_size|batch_size|gradient_accumulation_steps|dtype|vocab_size) = '?(\w+)'?"
)
_NAMES = {"n_layer": "num_layers", "n_head": "num_attention_heads", "n_embd": "hidden_size", "block_size": "seq_length",
          "batch_size": "micro_batch_size", "vocab_size": "padded_vocab_size"}  # fmt: skip


def read(text: Iterable[str], notes: Notes) -> Log:
    """Read the lines of a nanoGPT log."""
    rows, evaluated = Rows(notes), -1
    for whole_line in text:
        rank, line = ranked(whole_line)
        if match := _ITER.search(line):
            iteration = int(match[1])
            _iteration(iteration, match, rank, iteration == evaluated, rows)
        elif match := _EVALUATION.search(line):
            evaluated = int(match[1])
        elif match := _TOKENS.search(line):
            notes.argument("tokens_per_iteration", str(whole(match[1]) or ""))
        elif match := _PARAMETERS.search(line):
            notes.claims["parameters"] = (number(match[1]) or 0.0) * 1e6
        elif match := _CONFIG.match(line.strip()):
            notes.argument(_NAMES.get(match[1], match[1]), match[2])
    if "mfu" in notes.claims:
        notes.claims["peak"] = A100_PEAK
        notes.warn(caution("nanogpt-peak"))
    return rows.log(NAME)


def _iteration(iteration: int, match: re.Match[str], rank: int | None, evaluated: bool, rows: Rows) -> None:
    """Add one iteration line as a row."""
    seconds, loss = number(match[3]), number(match[2])
    if seconds is None or seconds <= 0:
        rows.notes.skipped["an iteration line without its time"] += 1
        return
    if evaluated:
        unusual = "includes an evaluation"
    else:
        unusual = "loss is nan" if "nan" in match[2].lower() else ""
    rows.add(iteration, seconds / 1e3, rank=rank, unusual=unusual, loss=loss)
    mfu = number(match[4])
    if mfu is not None and mfu > 0:  # -100 before it has an average
        rows.notes.claims["mfu"] = mfu / 100.0
