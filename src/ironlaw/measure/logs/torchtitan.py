"""Logs of torchtitan: coloured, one line per log interval and rank, with tokens per second and TFLOP/s per device.

    [rank0]:[titan] 2026-05-18 16:04:46,338 - root - INFO - step: 14  loss:  3.24405  grad_norm:  0.8319  memory:  9.46GiB(64.99%)
    tps: 7,282  tflops: 0.52  mfu: 0.17%                                                          (one line)

The line has no step time: it is measured from line to line by the clock of the logger, in whole milliseconds.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from ironlaw.cautions.table import caution
from ironlaw.measure.logs.log import Log, Notes, Rows, clock, number, ranked, whole

NAME = "torchtitan"
SIGNS = (
    re.compile(rb"step:\s*(?:\x1b\[\d+m)?\s*\d+\s.{0,400}?tps:\s*(?:\x1b\[\d+m)?\s*[\d,]+\s.{0,80}?(?:tflops|mfu):"),
    re.compile(rb"\[titan\] \d{4}-\d\d-\d\d[^\n]{0,40} - root - INFO - "),
)
_STEP = re.compile(r"\bstep:\s*(\d{1,12})\s")
_FIELD = re.compile(r"\b(loss|memory|tps|tflops|mfu|data_loading\(%\)):\s*([^\s%]+)")
_DEVICE = re.compile(r"CUDA capacity: (.{1,100}?) with ([\d.]+)GiB")
_PEAK = re.compile(r"Peak FLOPS used for computing MFU: ([\d.e+]+)")
_UNKNOWN = re.compile(r"Peak flops undefined for: (.{1,100}?), fallback to (\S+)")
_BUILD = re.compile(r"Building (\S+) (\S+) with \w+\((.*)\)")
_MODEL = {"dim": "hidden_size", "n_layers": "num_layers", "n_heads": "num_attention_heads", "n_kv_heads": "num_query_groups",
          "vocab_size": "padded_vocab_size", "max_seq_len": "seq_length"}  # fmt: skip
_SIZE = re.compile(r"Model (\S+) (\S+) size: ([\d,]+) total parameters")
_TRAINING = re.compile(r"(local batch size|global batch size|sequence length) (\d+)")


def read(text: Iterable[str], notes: Notes) -> Log:
    """Read the lines of a torchtitan log."""
    rows = Rows(notes)
    for whole_line in text:
        rank, line = ranked(whole_line)
        if "tps:" in line and (match := _STEP.search(line)):
            _step(int(match[1]), line, rank, rows)
        elif " - INFO - " in line or " - WARNING - " in line:
            _read_info(line, notes)
    return rows.log(NAME)


def _step(step: int, line: str, rank: int | None, rows: Rows) -> None:
    """Add one step line as a row; its time comes from the clock."""
    fields = dict(_FIELD.findall(line))
    tokens = number(fields.get("tps"))
    if tokens is None:
        rows.notes.skipped["a step line that is cut"] += 1
        return
    lost = fields.get("loss", "").lower() == "nan"
    share = number(fields.get("data_loading(%)"))
    rows.add(
        step,
        rank=rank,
        unusual="loss is nan" if lost else "",
        clock=clock(line),
        tokens_per_second=tokens,
        tflops=number(fields.get("tflops")),
        loss=number(fields.get("loss")),
        memory=_bytes(fields.get("memory", "")),
        data_share=None if share is None else share / 100.0,
    )
    claimed = number(fields.get("mfu"))
    if claimed is not None:
        rows.notes.claims["mfu"] = claimed / 100.0  # the last value, after warm-up


def _bytes(text: str) -> float | None:
    value = number(text.split("GiB", 1)[0]) if "GiB" in text else None
    return None if value is None else value * 2.0**30


def _read_info(line: str, notes: Notes) -> None:
    """Read what a line says of the device, the model and the training arguments."""
    if match := _DEVICE.search(line):
        notes.device_name = notes.device_name or match[1][:200]
        notes.claims.setdefault("memory_capacity", (number(match[2]) or 0.0) * 2.0**30)
    elif match := _UNKNOWN.search(line):
        notes.warn(caution("torchtitan-peak", device=match[1][:100], peak=match[2][:20]))
    elif match := _PEAK.search(line):
        peak = number(match[1])
        if peak:
            notes.claims["peak"] = peak
    elif match := _BUILD.search(line):
        _arguments(match[3], notes)
    elif match := _SIZE.search(line):
        notes.argument("model", f"{match[1]} {match[2]}")
        notes.claims["parameters"] = float(whole(match[3]) or 0)
    for name, value in _TRAINING.findall(line):
        notes.argument({"local batch size": "micro_batch_size", "global batch size": "global_batch_size"}.get(name, "seq_length"), value)


def _arguments(text: str, notes: Notes) -> None:
    """Read the arguments of the model that contain no bracket."""
    for name, value in re.findall(r"\b(\w{1,60})=([^,()\[\]]+)", text):
        if name == "max_seq_len":
            notes.argument("max_seq_len", value)  # of the model; the sequence length of the run is in the training line
        elif name in _MODEL:
            notes.argument(_MODEL[name], value)
        else:
            notes.argument(f"model.{name}", value)
