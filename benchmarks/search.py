"""Searches of large spaces: library call, cold command, memory, answers to a changed question, equality with ``estimate`` in bits.

The spaces are in benchmarks/spaces. A call is the best of five and a command the best of three: other programs share the machine.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from figures import Figure, WrongError

SPACES = Path(__file__).parent / "spaces"
CALCULON = (13, 20)  # plans a second and core, measured beside this project on two cores; Calculon 0.1, isc 2023


@dataclass(frozen=True)
class Named:
    """A space, its question, and its limits."""

    space: str | None  # None: the default space
    question: dict[str, Any]
    rows: int  # at least
    legal: int  # at least
    call: float  # seconds at most
    cold: float | None  # seconds at most
    memory: float = 250.0  # MB at most

    @property
    def name(self) -> str:
        """What the figures are called."""
        return self.space or f"{self.question['model']}-{self.question['gpus']}, default space"


NAMED = (
    Named(
        "gpt-3-1024", {"model": "gpt-3-175b", "on": "a100-sxm-80gb", "gpus": 1024, "global_batch_size": 1536}, 19_000, 8_000_000, 1.0, 2.0
    ),
    Named(
        "llama-3.1-405b-16384",
        {"model": "llama-3.1-405b", "on": "h100-sxm", "gpus": 16384, "global_batch_size": 2048, "seq_len": 8192},
        10_000,
        6_000_000,
        1.5,
        2.5,
    ),
    Named(
        "deepseek-v3-2048",
        {"model": "deepseek-v3", "on": "h800", "gpus": 2048, "global_batch_size": 15360, "seq_len": 4096},
        10_000,
        1_000_000,
        5.0,
        None,
    ),
    Named(None, {"model": "gpt-3-175b", "on": "a100-sxm-80gb", "gpus": 1024, "global_batch_size": 1536}, 10_000, 4_000_000, 1.0, 2.0),
    Named(
        None,
        {"model": "deepseek-v3", "on": "h800", "gpus": 2048, "global_batch_size": 15360, "seq_len": 4096, "precision": "fp8-block"},
        100_000,
        16_000_000,
        3.0,
        None,
        800.0,
    ),
)

# one process a space, so that its memory is its own; the first call warms what a program has loaded anyway
CHILD = """
import json, resource, sys, time
import ironlaw
import numpy as np
question, space = json.loads(sys.argv[1]), sys.argv[2] or None
ironlaw.search("llama-3-8b", on="h100-sxm", gpus=8, global_batch_size=64).first(1)
taken = []
for _ in range(5):
    start = time.perf_counter()
    found = ironlaw.search(**question, tokens="300B", space=space)
    first = found.first(100)
    taken.append(time.perf_counter() - start)
listed = found.explained(found.of_kinds(5))  # the page of the question before
start = time.perf_counter()
again = found.again(price=1.5, tokens="1T", deadline=900)
listed = again.explained(again.of_kinds(5))
again_taken = time.perf_counter() - start
flat = [estimate.place_of(row) for estimate, row in found.explained(first)]
same = all(c.seconds == g.step.tree.value[i] and c.device == g.memory.device[i] and g.legal[i] and g.memory.fits[i]
           for c, (g, i) in zip(first, flat))
ordered = [c.seconds for c in first] == sorted(c.seconds for c in first)
peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6 * (1024 if sys.platform != "darwin" else 1)
plans, product = np.full(1 << 16, 1.5), np.empty(1 << 16)
multiplied = []
for _ in range(5):  # one multiplication a plan, in blocks that stay in cache
    start = time.perf_counter()
    for _ in range(found.space["legal"] // plans.size + 1):
        np.multiply(plans, plans, out=product)
    multiplied.append(time.perf_counter() - start)
print(json.dumps({**found.space, "call": min(taken), "again": again_taken, "same": same and ordered, "listed": len(listed), "peak": peak,
                  "multiplied": min(multiplied)}))
"""


def measured(named: Named) -> dict[str, Any]:
    """Times and counts of a space, measured in a new process."""
    space = str(SPACES / f"{named.space}.toml") if named.space else ""
    done = subprocess.run([sys.executable, "-c", CHILD, json.dumps(named.question), space], check=True, capture_output=True, text=True)
    return json.loads(done.stdout)


def cold(named: Named) -> float:
    """Seconds of the whole command in a fresh process, best of three."""
    flags = [part for name, value in named.question.items() if name != "model" for part in (f"--{name.replace('_', '-')}", str(value))]
    space = ["--space", str(SPACES / f"{named.space}.toml")] if named.space else []
    command = [sys.executable, "-m", "ironlaw", "plan", named.question["model"], *flags, *space]
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
    taken = []
    for _ in range(3):
        start = time.perf_counter()
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL, env=environment)
        taken.append(time.perf_counter() - start)
    return min(taken)


def figures() -> list[Figure]:
    """Times and memory of every space; a space that answers wrongly raises."""
    found = []
    for named in NAMED:
        got = measured(named)
        expected = {
            "the first 100 are those of estimate, in order and in bits": got["same"],
            f"at least {named.rows} mesh rows": got["rows"] >= named.rows,
            f"at least {named.legal} legal plans": got["legal"] >= named.legal,
            "an answer that is not empty": bool(got["listed"]),
        }
        if missing := [what for what, right in expected.items() if not right]:
            raise WrongError(f"{named.name}: expected {', '.join(missing)}")
        subject = f"{named.name}: {got['legal']:,} legal plans on {got['rows']:,} mesh rows, {got['timed']:,} timed"
        found.append(Figure(subject, "library call with the first 100", got["call"], "s", named.call))
        found.append(Figure(subject, "the call, over one multiplication a plan", got["call"] / got["multiplied"], "times"))
        if named.cold:
            found.append(Figure(subject, "cold command", cold(named), "s", named.cold))
        found.append(Figure(subject, "other price, tokens and deadline", got["again"], "s", 0.15))
        found.append(Figure(subject, "peak memory", got["peak"], "MB", named.memory))
        found.append(Figure(subject, f"rate (Calculon {CALCULON[0]} to {CALCULON[1]} a core)", got["legal"] / got["call"], "plans/s"))
    return found
