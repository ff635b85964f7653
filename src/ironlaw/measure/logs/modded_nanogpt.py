"""Logs of modded-nanogpt: the source of the run, the output of nvidia-smi, then one line per step with the time since a timer started.

    step:13/1390 train_time:406ms step_avg:135.28ms
    step:1390/1390 val_loss:3.2785 train_time:204345ms step_avg:148.08ms

The timer restarts after ten steps, whose average is printed as ``nanms``. Step lines do not wait for the device, validation lines do: the
time of a step may be only the time to queue it, while the total up to a validation is right. Work that the device finishes at a validation
is added to the step before it, so steps sum to the printed total.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from ironlaw.measure.logs.log import Log, Notes, Rows, number, ranked

NAME = "modded-nanogpt"
SIGNS = (
    re.compile(rb"(?:^|\n)(?:\S+ )?step:\d+/\d+ (?:val_loss:\S+ )?train_time:\d+ms"),
    re.compile(rb"print0\([^\n]{0,60}step:\{step[^\n]{0,200}train_time:\{"),
)
_STEP = re.compile(r"^step:(\d{1,12})/\d+ (?:val_loss:(\S+) )?train_time:(\d{1,15}(?:\.\d+)?)(ms|s) step_avg:(\S+?)ms")
_MEMORY = re.compile(r"^peak memory (?:consumption|allocated): (\d+) MiB")
_FIRST = "before the timer of the log restarts"


def read(text: Iterable[str], notes: Notes) -> Log:
    """Read the lines of a modded-nanogpt log."""
    timer = _Timer(notes)
    for whole_line in text:
        rank, line = ranked(whole_line)
        if line.startswith("step:"):
            match = _STEP.match(line)
            if match is None:
                notes.skipped["a step line that is cut"] += 1
            else:
                timer.line(match, rank)
        elif match := _MEMORY.match(line):
            notes.claims["memory_allocated_max"] = float(match[1][:15]) * 2.0**20
        else:
            notes.device(line)
    if notes.devices:
        notes.argument("world_size", str(notes.devices))  # one process per device of a single node
    return timer.rows.log(NAME)


class _Timer:
    """Step times from the time since the timer started."""

    def __init__(self, notes: Notes) -> None:
        self.notes, self.rows = notes, Rows(notes)
        self.before = 0.0  # the timer on the previous line
        self.start = 0  # the step of the last restart

    def line(self, match: re.Match[str], rank: int | None) -> None:
        """Add one step line; a validation line corrects the time of the step before it."""
        step = int(match[1])
        elapsed = float(match[3]) / (1e3 if match[4] == "ms" else 1.0)
        loss, average = number(match[2]), number(match[5])
        rows = self.rows.rows
        if match[2] is not None:  # a validation: the device has finished all steps up to this one
            if rows and rows[-1].iteration == step and elapsed >= self.before:
                rows[-1].seconds += elapsed - self.before
                if loss is not None:
                    rows[-1].values["loss"] = loss
            self._claim(step, elapsed)
        else:
            if elapsed < self.before:
                self._restart(step - 1)
            self.rows.add(step, elapsed - self.before, rank=rank, unusual="" if average is not None or self.start else _FIRST)
        self.before = elapsed

    def _restart(self, step: int) -> None:
        """The timer restarted: the log counts all earlier steps as warm-up."""
        for row in self.rows.rows:
            row.aside = row.aside or _FIRST
        self.before, self.start = 0.0, step

    def _claim(self, step: int, elapsed: float) -> None:
        if step > self.start and elapsed > 0:
            self.notes.claims["mean_step"] = elapsed / (step - self.start)
            self.notes.claims["mean_of_steps"] = float(step - self.start)
