"""Logs of Megatron-LM and its relatives Megatron-DeepSpeed, GPT-NeoX and Primus, in old and current spelling.

    iteration       10/    1000 | consumed samples:  40 | elapsed time per iteration (ms): 2152.2 | ... | lm loss: 1.2E+01 | ...

The time of a line is the mean over the iterations since the previous line (``--log-interval``). Arguments come first, one per line: a name
at the start of the line, then dots. ``num_layers`` is not ``checkpoint_num_layers``.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from ironlaw.measure.logs.log import Log, Notes, Rows, clock, number, ranked, whole

NAME = "megatron"
SIGNS = (
    re.compile(rb"iteration\s+\d+/\s*\d+ \|[^\n]{0,400}elapsed time per iteration \(ms\)"),
    re.compile(rb"\n[ \t]{0,8}tensor_model_parallel_size \.{3,}"),
    re.compile(rb"using world size: ?\d+, ?(?:data-parallel|tensor-model|context)[^\n]{0,60}size"),
    re.compile(rb"--tensor-model-parallel-size \d+[^\n]{0,2000}--num-layers \d+|--num-layers \d+[^\n]{0,2000}--micro-batch-size \d+"),
)
_ARGUMENT = re.compile(r"^(?:\s*\[[\d :-]+\])?\s*([A-Za-z_]\w*) \.{2,} ?(.*)$")
_ITERATION = re.compile(r"\biteration\s+(\d{1,15})/\s*\d+ \|")
_VOCABULARY = re.compile(r"> padded vocab \(size: (\d+)\).{0,80}?\(new size: (\d+)\)")
_WORLD = re.compile(r"using world size: ?(\d+)")
_MEMORY = re.compile(r"max allocated: ([\d.]+)")
_FIELDS = {  # name of a field in an iteration line -> column
    "throughput per gpu (tflop/s/gpu)": "tflops",
    "approx flops per gpu": "tflops",
    "tflops": "tflops",
    "tokens per gpu per second (tgs)": "tokens_per_second",
    "tokens per gpu (tokens/s/gpu)": "tokens_per_second",
    "tokens/sec/gpu": "tokens_per_second",
    "lm loss": "loss",
    "lm_loss": "loss",
    "power per gpu (w/gpu)": "power",
    "global batch size": "batch",
}
_BRIDGE = re.compile(r"GPU utilization: {0,3}([\d.]{1,12}) {0,2}MODEL_TFLOP")
_TIME = "elapsed time per iteration (ms)"


def read(text: Iterable[str], notes: Notes) -> Log:
    """Read the lines of a Megatron log."""
    rows, peak, bridge = Rows(notes), 0.0, 0.0  # bridge: the rate that Megatron-Bridge prints before the line of its iteration
    for whole_line in text:
        rank, line = ranked(whole_line)
        if "elapsed time per iteration" in line and (match := _ITERATION.search(line)):
            _iteration(int(match[1]), line[match.start() :], rank, rows, clock(line), bridge)
            bridge = 0.0
        elif "MODEL_TFLOP/s/GPU" in line and (match := _BRIDGE.search(line)):
            bridge = number(match[1]) or 0.0
        elif ".." in line and (match := _ARGUMENT.match(line)):
            notes.argument(match[1], match[2])
        elif "padded vocab" in line and (match := _VOCABULARY.search(line)):
            notes.argument("vocab_size", match[1])
            notes.argument("padded_vocab_size", match[2])
        elif "max allocated" in line:
            peak = max([peak, *((number(v) or 0.0) for v in _MEMORY.findall(line))])
        elif "world size" in line and (match := _WORLD.search(line)):
            notes.argument("world_size", match[1])
        elif line.startswith("time (ms) |") and "forward" in line and "backward" in line:
            _timers(line, notes)
        else:
            notes.device(line)
    if peak:
        notes.claims["memory_allocated_max"] = peak * 2.0**20  # the log says MB and divides by 1024 twice
    return rows.log(NAME, averages=True)


def _iteration(iteration: int, line: str, rank: int | None, rows: Rows, when: float | None, bridge: float) -> None:
    """Add one iteration line as a row."""
    fields = dict(_split_name(part) for part in line.split("|")[1:] if ":" in part)
    seconds = number(_read_current(fields.get(_TIME, "")))
    if seconds is None or seconds <= 0:
        rows.notes.skipped["an iteration line without its time (cut or interleaved)"] += 1
        return
    values: dict[str, float | None] = {}
    for name, column in _FIELDS.items():
        if name in fields:
            values[column] = number(_read_current(fields[name]))
    if bridge:
        values.setdefault("tflops", bridge)
    skips, nans = (whole(fields.get(f"number of {state} iterations", "")) or 0 for state in ("skipped", "nan"))
    lost = "nan" in fields.get("lm loss", "").lower()
    rows.add(iteration, seconds / 1e3, rank=rank, unusual=_why_unusual(skips, nans, lost), clock=when, **values)


def _timers(line: str, notes: Notes) -> None:
    """``time (ms) | forward-compute: 29189.57 | ... | batch-generator: 206.47``: the timers of a rank, some nested."""
    for part in line.split("|")[1:]:
        name, _, value = part.rpartition(":")
        milliseconds = number(value)
        name = name.strip()
        if milliseconds is not None and milliseconds >= 0 and name and (name in notes.timers or len(notes.timers) < 100):
            notes.timers.setdefault(name[:80], []).append(milliseconds / 1e3)


def _why_unusual(skips: int, nans: int, lost: bool) -> str:
    """Why an iteration line is no ordinary step; empty where it is one."""
    if skips:
        return "includes iterations that the loss scaler skipped"
    if nans or lost:
        return "includes iterations with nan"
    return ""


def _split_name(part: str) -> tuple[str, str]:
    name, value = part.rsplit(":", 1)
    return name.strip().lower(), value.strip()


def _read_current(text: str) -> str:
    """The current value: Primus prints current/mean, GPT-NeoX prints the unit after the number.

    >>> _read_current("13100.0/13240.9"), _read_current("112.9TFLOPS")
    ('13100.0', '112.9')
    """
    return text.split("/", 1)[0].removesuffix("TFLOPS").strip()
