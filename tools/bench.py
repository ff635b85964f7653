"""Speed as ratios and budgets: whole processes against ``import numpy``, and the batch call. Exits 1 over budget.

Run with ``make bench``. Every figure is a median of runs taken in turn, so that a noisy machine disturbs both sides alike.
"""

from __future__ import annotations

import os
import resource
import statistics
import subprocess
import sys
import time

ASK = ["estimate", "llama-3-70b", "--on", "h100-sxm", "--gpus", "512", "--tp", "8", "--pp", "4", "--global-batch-size", "512"]
OPEN = ["estimate", "llama-3-70b", "--on", "h100-sxm", "--gpus", "512"]
RUNS = 15


def cpu_seconds(arguments: list[str]) -> float:
    """User and system time of one child process."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
    subprocess.run([sys.executable, *arguments], check=True, stdout=subprocess.DEVNULL, env=environment)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def in_turn(commands: dict[str, list[str]]) -> dict[str, list[float]]:
    """CPU seconds of each command, run after one another ``RUNS`` times after a warm-up."""
    for command in commands.values():
        cpu_seconds(command)
    taken: dict[str, list[float]] = {name: [] for name in commands}
    for _ in range(RUNS):
        for name, command in commands.items():
            taken[name].append(cpu_seconds(command))
    return taken


def batch() -> tuple[int, float]:
    """Plans of one call, and its seconds."""
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
    return n, time.perf_counter() - start


def main() -> int:
    taken = in_turn(
        {
            "import numpy": ["-c", "import numpy"],
            "estimate, plan given": ["-m", "ironlaw", *ASK],
            "estimate, plan chosen": ["-m", "ironlaw", *OPEN],
            "--help": ["-m", "ironlaw", "--help"],
        }
    )
    base = taken["import numpy"]
    over = []
    for name, budget in (("estimate, plan given", 1.8), ("estimate, plan chosen", 1.8)):
        ratio = statistics.median(a / b for a, b in zip(taken[name], base, strict=True))
        print(f"{name:<26}{statistics.median(taken[name]):7.3f} s CPU {ratio:6.2f} times import numpy (budget {budget})")
        if ratio > budget:
            over.append(name)
    shown = statistics.median(taken["--help"])
    print(f"{'--help':<26}{shown:7.3f} s CPU (budget 0.25)")
    if shown > 0.25:
        over.append("--help")
    plans, seconds = batch()
    print(f"{'one call':<26}{seconds:7.3f} s for {plans} plans, {plans / seconds:,.0f} plans/s (budget 6 s)")
    if seconds > 6.0:
        over.append("one call")
    for name in over:
        print(f"over budget: {name}")
    return 1 if over else 0


if __name__ == "__main__":
    sys.exit(main())
