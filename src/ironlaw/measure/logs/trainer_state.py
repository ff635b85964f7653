"""``trainer_state.json`` of Hugging Face's Trainer.

``log_history`` has losses by step but no times. The last entry of a finished run has the seconds of the whole run, including evaluation and
checkpoints. So a finished run gives one row, the mean over the run, and an unfinished one gives none.
"""

from __future__ import annotations

import json
import math
import re
from typing import Any

from ironlaw.cautions.table import caution
from ironlaw.errors import InputError
from ironlaw.measure.logs.log import Log, Notes, Rows
from ironlaw.measure.read.limits import open_bytes

NAME = "trainer-state"
SIGNS = (
    re.compile(rb'^\s*\{(?=[^\x00]*"(?:global_step|best_metric|is_world_process_zero)")[^\x00]*"(?:log_history|is_hyper_param_search)"'),
)
MOST = 256 << 20


def read_file(notes: Notes) -> Log:
    """Read the JSON object of the file."""
    with open_bytes(notes.path, MOST) as stream:
        data = stream.read(MOST + 1)
    try:
        state = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise InputError(f"{notes.path}: not JSON: {str(error)[:120]}; was the trainer_state.json cut?") from None
    history = state.get("log_history") if isinstance(state, dict) else None
    if not isinstance(history, list):
        raise InputError(f"{notes.path}: no list log_history; give the trainer_state.json of a checkpoint")
    return _log(state, [h for h in history if isinstance(h, dict)], notes)


def _log(state: dict[str, Any], history: list[dict[str, Any]], notes: Notes) -> Log:
    """Make the log of a whole run: one row with the mean step time."""
    rows = Rows(notes)
    steps = _finite(state.get("global_step"))
    for name in ("train_batch_size", "num_input_tokens_seen", "max_steps", "num_train_epochs"):
        if _finite(state.get(name)) is not None:
            notes.argument(name, str(state[name])[:40])
    total = _finite(state.get("total_flos"))
    if total:
        notes.claims["total_flop"] = total
    loss = next((value for h in reversed(history) if (value := _finite(h.get("loss"))) is not None), None)
    end = next((h for h in reversed(history) if (_finite(h.get("train_runtime")) or 0.0) > 0), None)
    if end is None or not steps or not 1 <= steps < 2**53:
        notes.warn(caution("no-runtime"))
        return rows.log(NAME)
    runtime = float(end["train_runtime"])
    notes.claims["run_seconds"] = runtime
    rate = _finite(end.get("train_samples_per_second"))
    if rate:
        notes.claims["samples_per_second"] = rate
    notes.warn(caution("mean-of-whole-run"))
    rows.add(int(steps), runtime / steps, loss=loss)
    log = rows.log(NAME)
    log.averaged[:] = int(steps)
    return log


def _finite(value: object) -> float | None:
    """A finite number as float; None for anything else."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        return float(value) if math.isfinite(value) else None
    except OverflowError:
        return None
