"""Start-up of whole processes relative to ``import numpy``, and one call with many plans.

Every figure is a median of runs taken in turn, so that a noisy machine disturbs both sides alike.
"""

from __future__ import annotations

import os
import resource
import statistics
import subprocess
import sys

from figures import Figure

ASK = ["estimate", "llama-3-70b", "--on", "h100-sxm", "--gpus", "512", "--tp", "8", "--pp", "4", "--global-batch-size", "512"]
OPEN = ["estimate", "llama-3-70b", "--on", "h100-sxm", "--gpus", "512"]
RUNS = 15
ONE_CALL = """
import time
import numpy as np
import ironlaw
rng = np.random.default_rng(1)
n = 65536
columns = {
    "gpus": rng.choice([256, 512, 1024], n),
    "tp": rng.choice([1, 2, 4, 8], n),
    "pp": rng.choice([1, 2, 4, 8], n),
    "vpp": 1,
    "zero": 1,
    "micro_batch_size": rng.choice([1, 2, 4], n),
    "global_batch_size": rng.choice([1024, 2048], n),
    "recompute": rng.choice(["none", "selective", "full"], n),
}
start = time.perf_counter()
ironlaw.estimate("llama-3-70b", on="h100-sxm", **columns).step_seconds.sum()
print(n, time.perf_counter() - start)
"""  # in a new process: a process counts the peak memory of the one that starts it as its own


def cpu_seconds(arguments: list[str]) -> float:
    """User and system time of one child process."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
    subprocess.run([sys.executable, *arguments], check=True, stdout=subprocess.DEVNULL, env=environment)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def run_in_turn(commands: dict[str, list[str]]) -> dict[str, list[float]]:
    """CPU seconds of each command, run after one another ``RUNS`` times after a warm-up."""
    for command in commands.values():
        cpu_seconds(command)
    taken: dict[str, list[float]] = {name: [] for name in commands}
    for _ in range(RUNS):
        for name, command in commands.items():
            taken[name].append(cpu_seconds(command))
    return taken


def figures() -> list[Figure]:
    """CPU time of the command, and of one call."""
    taken = run_in_turn(
        {
            "import numpy": ["-c", "import numpy"],
            "estimate, plan given": ["-m", "ironlaw", *ASK],
            "estimate, plan chosen": ["-m", "ironlaw", *OPEN],
            "--help": ["-m", "ironlaw", "--help"],
        }
    )
    found = [
        Figure("start-up", name, statistics.median(seconds), "s CPU", 0.25 if name == "--help" else None) for name, seconds in taken.items()
    ]
    for name in ("estimate, plan given", "estimate, plan chosen"):
        ratio = statistics.median(a / b for a, b in zip(taken[name], taken["import numpy"], strict=True))
        found.append(Figure("start-up", f"{name}, over import numpy", ratio, "times", 1.8))
    printed = subprocess.run([sys.executable, "-c", ONE_CALL], check=True, capture_output=True, text=True).stdout.split()
    plans, seconds = int(printed[0]), float(printed[1])
    return [*found, Figure("one call", f"{plans} plans", seconds, "s", 6.0), Figure("one call", "rate", plans / seconds, "plans/s")]
