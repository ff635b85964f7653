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
            found = _STEP.match(line)
            if found is None:
                notes.skipped["a step line that is cut"] += 1
            else:
                timer.line(found, rank)
        elif found := _MEMORY.match(line):
            notes.claims["memory_allocated_max"] = float(found[1][:15]) * 2.0**20
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

    def line(self, found: re.Match[str], rank: int | None) -> None:
        step = int(found[1])
        now = float(found[3]) / (1e3 if found[4] == "ms" else 1.0)
        loss, average = number(found[2]), number(found[5])
        kept = self.rows.rows
        if found[2] is not None:  # a validation: the device has finished all steps up to this one
            if kept and kept[-1].iteration == step and now >= self.before:
                kept[-1].seconds += now - self.before
                if loss is not None:
                    kept[-1].values["loss"] = loss
            self._claim(step, now)
        else:
            if now < self.before:
                self._restart(step - 1)
            self.rows.add(step, now - self.before, rank=rank, aside="" if average is not None or self.start else _FIRST)
        self.before = now

    def _restart(self, step: int) -> None:
        """The timer restarted: the log counts all earlier steps as warm-up."""
        for row in self.rows.rows:
            row.aside = row.aside or _FIRST
        self.before, self.start = 0.0, step

    def _claim(self, step: int, now: float) -> None:
        if step > self.start and now > 0:
            self.notes.claims["mean_step"] = now / (step - self.start)
            self.notes.claims["mean_of_steps"] = float(step - self.start)
