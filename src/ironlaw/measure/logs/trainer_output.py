"""What Hugging Face's Trainer and trainers built on it write to the terminal: progress bars, and a dict at every logging step.

     10%|█         | 45/450 [01:30<13:30,  2.00s/it]
    {'loss': 1.2, 'grad_norm': 0.5, 'learning_rate': 1e-05, 'epoch': 0.1}
    {'loss': 1.2, 'memory(GiB)': 76.72, 'elapsed_time': '0m 25s', 'global_step/max_steps': '5/4500', 'train_speed(iter/s)': 0.2}
    {'train_runtime': 900.0, 'train_samples_per_second': 8.0, 'train_steps_per_second': 0.5, 'train_loss': 1.1, 'epoch': 1.0}

Bars and dicts show the elapsed time in whole seconds. So a row is the mean over at least 20 s, where half a second is at most 5 %; the
printed rate, which is smoothed, counts only where the whole log is shorter. A bar of an evaluation has another total: the bar that runs
longest is that of the training.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import NamedTuple

from ironlaw.cautions.table import caution
from ironlaw.measure.logs.log import ROWS, Log, Notes, Rows, number

NAME = "trainer-output"
SIGNS = (re.compile(rb"\{'(?:loss|train_loss|train_runtime)': [^\n{}]{0,900}'(?:epoch|learning_rate|global_step/max_steps)': "),)
OVERWRITES = True  # a bar is overwritten by carriage returns: every state of it is read
LEAST = 20.0  # [s] of a row
_BAR = re.compile(
    r"\b(?P<step>\d{1,12})/(?P<total>\d{1,12}) \[(?P<elapsed>[\d:]{4,12})<[^,\]]{0,20},\s{0,4}(?P<rate>[\d.]{1,12})\s?(?P<unit>s/it|it/s)"
)
_DICT = re.compile(r"\{'[^{}]{1,2000}\}")
_ENTRY = re.compile(r"'([\w()/. -]{1,60})': '?([^',}]{1,60})'?")
_ELAPSED = re.compile(r"^(?:(\d{1,4})d\s?)?(?:(\d{1,4})h\s?)?(?:(\d{1,4})m\s?)?(\d{1,4}(?:\.\d+)?)s$")
_STEPS = re.compile(r"^(\d{1,12})/(\d{1,12})$")


class State(NamedTuple):
    """The progress that a bar or a dict shows."""

    step: int
    elapsed: float  # [s] since the start of the loop
    seconds: float  # of a step, as printed


def read(text: Iterable[str], notes: Notes) -> Log:
    """Read the bars and dicts of a trainer's output."""
    states: dict[int, list[State]] = {}  # by the total number of steps
    losses: dict[int, float] = {}
    memory, step, count = 0.0, 0, 0
    for line in text:
        for bar in _BAR.finditer(line):
            rate = number(bar["rate"])
            if rate is not None and rate > 0 and count < ROWS:
                state = State(int(bar["step"]), _clock(bar["elapsed"]), rate if bar["unit"] == "s/it" else 1.0 / rate)
                states.setdefault(int(bar["total"]), []).append(state)
                step, count = state.step, count + 1
        for entries in (dict(_ENTRY.findall(part[0])) for part in _DICT.finditer(line)):
            if (found := _state_of(entries)) is not None and count < ROWS:
                states.setdefault(found[0], []).append(found[1])
                step, count = found[1].step, count + 1
            if (loss := number(entries.get("loss"))) is not None:
                losses[step] = loss
            memory = max(memory, number(entries.get("memory(GiB)")) or 0.0)
            _read_end(entries, notes)
    if memory:
        notes.claims["memory_reserved_max"] = memory * 2.0**30
    longest = max(states.values(), key=lambda rows: rows[-1].elapsed, default=[])
    rows = Rows(notes)
    _add_rows(rows, longest, losses)
    if not rows.rows and "steps_per_second" in notes.claims and "run_seconds" in notes.claims:
        steps = round(notes.claims["run_seconds"] * notes.claims["steps_per_second"])
        notes.warn(caution("mean-of-whole-run"))
        rows.add(max(steps, 1), 1.0 / notes.claims["steps_per_second"])
    return rows.log(NAME)


def _add_rows(rows: Rows, states: list[State], losses: dict[int, float]) -> None:
    """Rows of at least 20 s each; the printed rate where the log is shorter."""
    before = State(0, 0.0, 0.0)
    for state in states:
        if state.step < before.step:  # the run restarted
            before = State(0, 0.0, 0.0)
        steps, seconds = state.step - before.step, state.elapsed - before.elapsed
        if steps > 0 and seconds >= LEAST:
            rows.add(state.step, seconds / steps, loss=losses.get(state.step))
            rows.rows[-1].averaged = steps
            before = state
    last = states[-1] if states else before
    if not rows.rows and last.step > 0:
        rows.notes.warn(caution("smoothed-rate"))
        rows.add(last.step, last.seconds, loss=losses.get(last.step))


def _state_of(entries: dict[str, str]) -> tuple[int, State] | None:
    """The total and the progress of a dict that has both; None for other dicts."""
    steps, elapsed = _STEPS.match(entries.get("global_step/max_steps", "")), _ELAPSED.match(entries.get("elapsed_time", ""))
    speed = number(entries.get("train_speed(iter/s)"))
    per_step = number(entries.get("train_speed(s/it)")) or (1.0 / speed if speed else None)
    if steps is None or per_step is None or per_step <= 0:
        return None
    days, hours, minutes, seconds = (float(part or 0.0) for part in elapsed.groups()) if elapsed else (0.0, 0.0, 0.0, 0.0)
    total = ((days * 24.0 + hours) * 60.0 + minutes) * 60.0 + seconds
    return int(steps[2]), State(int(steps[1]), total or int(steps[1]) * per_step, per_step)


def _read_end(entries: dict[str, str], notes: Notes) -> None:
    """Keep what the last dict of a run says of the whole of it."""
    names = {"train_runtime": "run_seconds", "train_samples_per_second": "samples_per_second", "train_steps_per_second": "steps_per_second"}
    for name, claim in names.items():
        value = number(entries.get(name))
        if value is not None and value > 0:
            notes.claims[claim] = value


def _clock(text: str) -> float:
    """Seconds of ``minutes:seconds`` or ``hours:minutes:seconds``.

    >>> _clock("01:30"), _clock("1:02:03")
    (90.0, 3723.0)
    """
    seconds = 0.0
    for part in text.split(":"):
        seconds = seconds * 60.0 + float(part or 0)
    return seconds
