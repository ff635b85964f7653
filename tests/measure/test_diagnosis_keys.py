"""Every key of a diagnosis is in the page of rules, and every key in the page is in a diagnosis."""

from __future__ import annotations

import contextlib
import functools
import io
import json
import pickle
import re
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import paths
from ironlaw.cli.main import main
from ironlaw.cli.schema import SCHEMAS
from ironlaw.measure.runs import redact
from ironlaw.shown import SCHEMA_VERSION
from made_snapshots import worked

MEASURED = paths.DATA / "measured"
PAGE = paths.ROOT / "docs" / "rules.md"
RUN = ["--model", "llama-3-8b", "--on", "v100-sxm-32gb", "--gpus", "64"]
ASKED = {
    "ranks": ["v100x8_dlrm"],
    "trace": ["mi300x_resnet_step.json.gz", "--unlinked", "drop"],
    "trace without its last step": ["v100_resnet50_nw4.json.gz", "--last-step", "drop"],
    "trace against an estimate": ["v100_resnet50_nw0.json.gz", *RUN],
    "logs": [p.name for p in sorted(MEASURED.glob("*.log"))],
    "timeline": ["memory_timeline.raw.gz", *RUN],
    "snapshot": ["snapshot.pickle"],
    "suspect": ["suspect.json"],
    "message": ["oom.txt", "--model", "llama-3-8b", "--on", "h100-sxm", "--gpus", "8", "--zero", "3", "--micro-batch-size", "4"],
    "estimate of states": ["states.txt"],
    "whole run": ["whole.log"],
    "log against an estimate": (
        *("megatron_mixtral_16xh100.log", "--model", "mixtral-8x7b", "--on", "h100-sxm", "--gpus", "16", "--seq-len", "2048"),
    ),
}
OOM = (
    b"CUDA out of memory. Tried to allocate 2.00 GiB (GPU 0; 79.15 GiB total capacity; 70.10 GiB already allocated; 1.20 GiB free;"
    b" 75.10 GiB reserved in total by PyTorch)"
)
STATES = (
    b"HW: Setup with 1 node, 8 GPUs per node.\nSW: Model with 2851M total params, 32M largest layer params.\n"
    b"  127.48GB |   6.10GB | offload_param=none, offload_optimizer=none, zero_init=0\n"
)
WHOLE = b"Rank=3 Node=node-7 Score=0.50\nsaving checkpoint to /tmp\n" + b"".join(
    b"iter %d: loss 3.2, time %.2fms, mfu 1.0%%\n" % (n, 100.0 if n < 40 else 130.0) for n in range(80)
)
OF_STEPS = ("number", "device_us", "start_us", "device_start_us")  # keys of a step, in one table with those of a window
COMMON = {"schema_version", "tool_version", "calibration_version", "catalog_hash", "assumptions", "warnings", "headline"}


def suspect() -> dict[str, Any]:
    """A trace with a kernel whose name sounds like communication and fits no pattern."""
    kernel = {
        "ph": "X",
        "cat": "kernel",
        "pid": 0,
        "tid": 7,
        "ts": 10,
        "dur": 5,
        "name": "our_peer_push",
        "args": {"device": 0, "stream": 7},
    }
    return {"traceEvents": [kernel]}


@functools.cache
def diagnosed(case: str) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder:
        made = {
            "snapshot.pickle": pickle.dumps(worked()),
            "suspect.json": json.dumps(suspect()).encode(),
            "oom.txt": OOM,
            "states.txt": STATES,
            "whole.log": WHOLE,
        }
        words = []
        for word in ASKED[case]:
            if word in made:
                (Path(folder) / word).write_bytes(made[word])
            where = Path(folder) if word in made else MEASURED
            words.append(str(where / word) if (where / word).exists() else word)
        out = io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(io.StringIO()):
            main(["diagnose", *words, "--json"])
    return json.loads(out.getvalue())


def walk(item: Any, where: str) -> Iterator[tuple[str, str]]:
    """Each key with the path of the object that holds it."""
    if isinstance(item, dict):
        for key, value in item.items():
            yield where, key
            yield from walk(value, f"{where}.{key}" if where else key)
    elif isinstance(item, list):
        for value in item:
            yield from walk(value, f"{where}[]")


def documented() -> dict[str, set[str]]:
    """The keys of each object, as the tables of the page have them."""
    text = PAGE.read_text(encoding="utf-8").split("### JSON of a diagnosis", 1)[1].split("\n## ", 1)[0]
    found: dict[str, set[str]] = {}
    where: list[str] = []
    for line in text.splitlines():
        cell = line.split("|")[1] if line.startswith("|") else ""
        if cell.startswith(" in ") or cell.strip() == "at the top":
            where = re.findall(r"`([^`]+)`", cell) or [""]
        elif where:
            for one in where:
                found.setdefault(one, set()).update(re.findall(r"`([^`]+)`", cell))
    return found


@pytest.mark.parametrize("case", ASKED)
def test_every_key_of_a_diagnosis_is_in_the_page(case):
    page = documented()
    data = diagnosed(case)
    assert data["schema_version"] == SCHEMA_VERSION
    lacking = set()
    for where, key in walk({k: v for k, v in data.items() if k not in COMMON}, ""):
        known = page.get(where, set())
        inside_open = any("*" in page.get(where[:i], ()) for i in range(len(where)) if where[i] in ".[")
        if not (key in known or "*" in known or inside_open or "warnings[]" in where):  # a warning is that of any answer
            lacking.add(f"{where}.{key}")
    assert not lacking


def test_every_key_of_the_page_is_in_a_diagnosis():
    seen: dict[str, set[str]] = {}
    for case in ASKED:
        for where, key in walk(diagnosed(case), ""):
            seen.setdefault(where, set()).add(key)
    unknown = {f"{where}.{key}" for where, keys in documented().items() for key in keys - seen.get(where, set()) if key != "*"}
    shared = {f"{w}.{k}" for w in documented() for k in ("total", "max", "p95", "ahead_ns", "ends_apart_ns", *OF_STEPS)}
    assert not unknown - shared


def test_a_redacted_diagnosis_keeps_every_key_of_its_schema():
    def keys(part):
        if isinstance(part, dict):
            yield from part["properties"] if isinstance(part.get("properties"), dict) else ()
            part = list(part.values())
        for inner in part if isinstance(part, list) else ():
            yield from keys(inner)

    redactor = redact.Redactor()
    named = set(keys(json.loads((SCHEMAS / "diagnose.json").read_text(encoding="utf-8"))))
    assert len(named) > 300 and {name for name in named if redact._key(name, redactor) != name} == set()
