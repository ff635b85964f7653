"""Logs of modded-nanogpt: the source of the run, the output of nvidia-smi, then lines with the time since a timer started.

    step:13/1390 train_time:406ms step_avg:135.28ms
    step:1390/1390 val_loss:3.2785 train_time:204345ms step_avg:148.08ms
    step:20/1000 train_loss:4.1021 train_time:1240ms step_avg:62.00ms

A line may be of every step or of every n-th step: its time is the elapsed time since the line before, over the steps between them.

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
    re.compile(rb"(?:^|\n)(?:\S+ )?step:\d+/\d+ (?:(?:train_|val_)?loss:\S+ ){0,2}train_time:\d+ms"),
    re.compile(rb"print0\([^\n]{0,60}step:\{step[^\n]{0,200}train_time:\{"),
)
_STEP = re.compile(
    r"^step:(?P<step>\d{1,12})/\d+ (?:(?:train_)?loss:(?P<loss>\S+) )?(?:val_loss:(?P<validation>\S+) )?"
    r"train_time:(?P<elapsed>\d{1,15}(?:\.\d+)?)(?P<unit>ms|s) step_avg:(?P<average>\S+?)ms"
)
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
        self.before = 0.0  # [s] the timer on the previous line
        self.last = 0  # the step of the previous line
        self.start = 0  # the step of the last restart

    def line(self, match: re.Match[str], rank: int | None) -> None:
        """Add one step line; a validation line corrects the time of the steps before it."""
        step = int(match["step"])
        elapsed = float(match["elapsed"]) / (1e3 if match["unit"] == "ms" else 1.0)
        if match["validation"] is not None:  # the device has finished all steps up to this one
            self._validate(step, elapsed, number(match["validation"]))
        else:
            if elapsed < self.before:
                self._restart()
            steps = max(step - self.last, 1)
            unusual = "" if number(match["average"]) is not None or self.start else _FIRST
            self.rows.add(step, (elapsed - self.before) / steps, rank=rank, unusual=unusual, loss=number(match["loss"]))
            self.rows.rows[-1].averaged = steps
        self.before, self.last = elapsed, step

    def _validate(self, step: int, elapsed: float, loss: float | None) -> None:
        """Correct the time of the line before a validation by the work that the device finished since."""
        rows = self.rows.rows
        if rows and rows[-1].iteration == step and elapsed >= self.before:
            rows[-1].seconds += (elapsed - self.before) / rows[-1].averaged
            if loss is not None:
                rows[-1].values["loss"] = loss
        self._claim(step, elapsed)

    def _restart(self) -> None:
        """The timer restarted: the log counts all earlier steps as warm-up."""
        for row in self.rows.rows:
            row.aside = row.aside or _FIRST
        self.before, self.start = 0.0, self.last

    def _claim(self, step: int, elapsed: float) -> None:
        if step > self.start and elapsed > 0:
            self.notes.claims["mean_step"] = elapsed / (step - self.start)
            self.notes.claims["mean_of_steps"] = float(step - self.start)
