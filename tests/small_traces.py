"""Events of small Chrome traces, written by hand: one host thread, one stream, times in microseconds."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any


def kernel(ts: float, dur: float, correlation: int | None = None, name: str = "gemm") -> dict[str, Any]:
    args = {"device": 0, "stream": 7} | ({} if correlation is None else {"correlation": correlation})
    return {"ph": "X", "cat": "kernel", "name": name, "pid": 0, "tid": 7, "ts": ts, "dur": dur, "args": args}


def launch(ts: float, correlation: int, dur: float = 5) -> dict[str, Any]:
    args = {"correlation": correlation}
    return {"ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernel", "pid": 9, "tid": 9, "ts": ts, "dur": dur, "args": args}


def step(number: int, ts: float, dur: float) -> dict[str, Any]:
    return {"ph": "X", "cat": "user_annotation", "name": f"ProfilerStep#{number}", "pid": 9, "tid": 9, "ts": ts, "dur": dur}


def write_trace(folder: Path, events: list[dict[str, Any]], name: str = "trace.json", **header: object) -> Path:
    path = folder / name
    path.write_text(json.dumps({"traceEvents": events, **header}))
    return path
