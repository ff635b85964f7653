"""What Hugging Face's Trainer and trainers built on it write to the terminal: progress bars, and a dict at every logging step.

     10%|█         | 45/450 [01:30<13:30,  2.00s/it]
    {'loss': 1.2, 'grad_norm': 0.5, 'learning_rate': 1e-05, 'epoch': 0.1}
    {'loss': 1.2, 'memory(GiB)': 76.72, 'elapsed_time': '0m 25s', 'global_step/max_steps': '5/4500', 'train_speed(iter/s)': 0.2}
    {'train_runtime': 900.0, 'train_samples_per_second': 8.0, 'train_steps_per_second': 0.5, 'train_loss': 1.1, 'epoch': 1.0}
    {"current_steps": 10, "total_steps": 450, "loss": 1.2, "elapsed_time": "0:00:25", "throughput": 15000.0}

TRL adds `num_tokens` (since the start, of all ranks) and `step_time`; axolotl memory and `tokens_per_second_per_gpu`; LLaMA-Factory
`throughput`, tokens per second of the job, and a file of JSON lines.

Bars and dicts show the elapsed time in whole seconds. So a row is the mean over at least 20 s, where half a second is at most 5 %; the
printed rate, which is smoothed, counts only where the whole log is shorter. A bar of an evaluation has another total: the bar that runs
longest is that of the training.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

from ironlaw.cautions.table import caution
from ironlaw.measure.logs.log import ROWS, Log, Notes, Rows, number, whole

NAME = "trainer-output"
SIGNS = (
    re.compile(
        rb"\{['\"](?:loss|train_loss|train_runtime|current_steps)['\"]: [^\n{}]{0,2500}"
        rb"['\"](?:epoch|learning_rate|global_step/max_steps|total_steps)['\"]: "
    ),
)
OVERWRITES = True  # a bar is overwritten by carriage returns: every state of it is read
LEAST = 20.0  # [s] of a row
_BAR = re.compile(
    r"\b(?P<step>\d{1,12})/(?P<total>\d{1,12}) \[(?P<elapsed>[\d:]{4,12})<[^,\]]{0,20},\s{0,4}(?P<rate>[\d.]{1,12})\s?(?P<unit>s/it|it/s)"
)
_DICT = re.compile(r"\{['\"][^{}]{1,4000}\}")
_ENTRY = re.compile(r"['\"]([\w()/. -]{1,60})['\"]: ['\"]?([^'\",}]{1,60})['\"]?")
_ELAPSED = re.compile(r"^(?:(\d{1,4})d\s?)?(?:(\d{1,4})h\s?)?(?:(\d{1,4})m\s?)?(\d{1,4}(?:\.\d+)?)s$")
_HOURS = re.compile(r"^(?:(\d{1,4}) days?, )?(\d{1,3}):(\d\d):(\d\d)$")
_STEPS = re.compile(r"^(\d{1,12})/(\d{1,12})$")
_EPOCH = re.compile(r"\bEpoch (\d{1,9})\s?:")
MEMORY = {  # keys of dicts [GiB] -> claim
    "memory(GiB)": "memory_reserved_max",
    "memory/max_mem_active(gib)": "memory_active_max", "memory/max_active (GiB)": "memory_active_max",
    "memory/max_mem_allocated(gib)": "memory_allocated_max", "memory/max_allocated (GiB)": "memory_allocated_max",
    "memory/device_mem_reserved(gib)": "memory_reserved_max", "memory/device_reserved (GiB)": "memory_reserved_max",
}  # fmt: skip
RATES = (  # keys of dicts with tokens per second, and of what
    ("tokens_per_second_per_gpu", "gpu"), ("tokens/train_per_sec_per_gpu", "gpu"), ("throughput", "job"),
)  # fmt: skip
TOKENS = ("num_tokens", "num_input_tokens_seen", "total_tokens")  # since the start, of all ranks


class State(NamedTuple):
    """The progress that a bar or a dict shows."""

    step: int
    elapsed: float  # [s] since the start of the loop
    seconds: float  # of a step, as printed


@dataclass
class Seen:
    """What bars and dicts showed."""

    states: dict[int, list[State]] = field(default_factory=dict)  # by the total number of steps
    losses: dict[int, float] = field(default_factory=dict)
    rates: dict[int, float] = field(default_factory=dict)  # tokens per second
    tokens: dict[int, float] = field(default_factory=dict)  # since the start
    times: dict[int, float] = field(default_factory=dict)  # [s] of a step, as the trainer measured it
    rate_of: str = "job"
    step: int = 0
    count: int = 0

    def add(self, total: int, state: State) -> None:
        """Add a state of a bar or a dict."""
        if self.count < ROWS:
            self.states.setdefault(total, []).append(state)
            self.step, self.count = state.step, self.count + 1


def read(text: Iterable[str], notes: Notes, form: str = NAME) -> Log:
    """Read the bars and dicts of a trainer's output; a bar that names its epoch begins again with each."""
    seen, epochs = Seen(), _Epochs()
    for line in text:
        if "it" in line:
            for bar in _BAR.finditer(line):
                rate = number(bar["rate"])
                if rate is not None and rate > 0:
                    epoch = _EPOCH.search(line, 0, bar.start())
                    state = State(int(bar["step"]), _clock(bar["elapsed"]), rate if bar["unit"] == "s/it" else 1.0 / rate)
                    total = int(bar["total"])
                    seen.add(total, state if epoch is None else epochs.whole(int(epoch[1]), total, state))
        if "{" in line:
            for part in _DICT.finditer(line):
                _dict(dict(_ENTRY.findall(part[0])), seen, notes)
    longest = max(seen.states.values(), key=lambda rows: rows[-1].elapsed, default=[])
    rows = Rows(notes)
    _add_rows(rows, longest, seen)
    if not rows.rows and "steps_per_second" in notes.claims and "run_seconds" in notes.claims:
        steps = round(notes.claims["run_seconds"] * notes.claims["steps_per_second"])
        notes.warn(caution("mean-of-whole-run"))
        rows.add(max(steps, 1), 1.0 / notes.claims["steps_per_second"])
    return rows.log(form, tokens_of=seen.rate_of)


class _Epochs:
    """Steps and elapsed time since the start of a run whose bar begins again with each epoch."""

    def __init__(self) -> None:
        self.epoch, self.before, self.last = 0, 0.0, 0.0

    def whole(self, epoch: int, total: int, state: State) -> State:
        """The state since the start of the run."""
        if epoch != self.epoch:
            self.before, self.epoch = self.before + self.last, epoch
        self.last = state.elapsed
        return State(epoch * total + state.step, self.before + state.elapsed, state.seconds)


def _dict(entries: dict[str, str], seen: Seen, notes: Notes) -> None:
    """Read one dict: its progress, loss, rates, memory and totals."""
    if (found := _state_of(entries)) is not None:
        seen.add(*found)
    if (loss := number(entries.get("loss"))) is not None:
        seen.losses[seen.step] = loss
    for name, of in RATES:
        if (rate := number(entries.get(name))) is not None and rate > 0:
            seen.rates[seen.step], seen.rate_of = rate, of
    if (tokens := next((v for name in TOKENS if (v := number(entries.get(name))) is not None), None)) is not None:
        seen.tokens[seen.step] = tokens
    if (seconds := number(entries.get("step_time"))) is not None and seconds > 0:
        seen.times[seen.step] = seconds
    for name, claim in MEMORY.items():
        if (size := number(entries.get(name))) is not None and size > 0:
            notes.claims[claim] = max(notes.claims.get(claim, 0.0), size * 2.0**30)
    _read_end(entries, notes)


def _add_rows(rows: Rows, states: list[State], seen: Seen) -> None:
    """Rows of at least 20 s each; the printed rate where the log is shorter."""
    before, tokens = State(0, 0.0, 0.0), dict(sorted(seen.tokens.items()))
    known = 0.0  # tokens at the state before
    for state in states:
        if state.step < before.step:  # the run restarted
            before, known = State(0, 0.0, 0.0), 0.0
        steps, seconds = state.step - before.step, state.elapsed - before.elapsed
        if steps <= 0 or seconds < LEAST:
            continue
        now = tokens.get(state.step)
        rate = seen.rates.get(state.step)
        if rate is None and now is not None and now > known and (known > 0 or before.step == 0):
            rate = (now - known) / seconds
        rows.add(state.step, seconds / steps, loss=seen.losses.get(state.step), tokens_per_second=rate)
        rows.rows[-1].averaged = steps
        before, known = state, now or 0.0
    last = states[-1] if states else before
    if not rows.rows and seen.times:
        for step, seconds in seen.times.items():
            rows.add(step, seconds, loss=seen.losses.get(step), tokens_per_second=seen.rates.get(step))
    elif not rows.rows and last.step > 0:
        rows.notes.warn(caution("smoothed-rate"))
        rows.add(last.step, last.seconds, loss=seen.losses.get(last.step), tokens_per_second=seen.rates.get(last.step))


def _state_of(entries: dict[str, str]) -> tuple[int, State] | None:
    """The total and the progress of a dict that has both; None for other dicts."""
    if "current_steps" in entries and (hours := _HOURS.match(entries.get("elapsed_time", ""))):
        step, total = whole(entries["current_steps"]), whole(entries.get("total_steps", ""))
        days, hour, minute, second = (float(part or 0.0) for part in hours.groups())
        elapsed = ((days * 24.0 + hour) * 60.0 + minute) * 60.0 + second
        return None if not step or total is None else (total, State(step, elapsed, elapsed / step))
    steps, elapsed_time = _STEPS.match(entries.get("global_step/max_steps", "")), _ELAPSED.match(entries.get("elapsed_time", ""))
    speed = number(entries.get("train_speed(iter/s)"))
    per_step = number(entries.get("train_speed(s/it)")) or (1.0 / speed if speed else None)
    if steps is None or per_step is None or per_step <= 0:
        return None
    days, hours_, minutes, seconds = (float(part or 0.0) for part in elapsed_time.groups()) if elapsed_time else (0.0, 0.0, 0.0, 0.0)
    total_time = ((days * 24.0 + hours_) * 60.0 + minutes) * 60.0 + seconds
    return int(steps[2]), State(int(steps[1]), total_time or int(steps[1]) * per_step, per_step)


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
