"""Start-up and open questions of whole processes relative to ``import numpy``, calls after one another in one process, and many plans in one.

Every figure is a median of runs taken in turn, so that a noisy machine disturbs both sides alike.
"""

from __future__ import annotations

import os
import resource
import statistics
import subprocess
import sys

from figures import Figure

OPEN = ["estimate", "llama-3-8b", "--on", "h100-sxm", "--gpus", "8"]
MESH = ["--tp", "2", "--pp", "1", "--vpp", "1", "--zero", "1", "--micro-batch-size", "1"]
ASK = [*OPEN, *MESH, "--recompute", "none"]
RUNS = 15
NUMPY = "import numpy"
BUDGETS = {"estimate, plan given": 1.6, "estimate, plan chosen": 3.0}  # in the time of importing numpy
MIXTURES = {  # estimates of mixtures that leave plan and batch open
    "deepseek-v3 on 96 h100-sxm": [],
    "deepseek-v3 on 96 gb200": [],
    "deepseek-v3 on 2048 h100-sxm": [],
    "deepseek-v3 on 2048 h800-sxm": ["--precision", "fp8"],
    "deepseek-v3 on 768 b200": [],
    "qwen3-235b-a22b on 96 h100-sxm": [],
}
MIXTURE = 25.0  # in the time of importing numpy, budget of each
STRANGE = [  # questions with values that few ask: each took 12 to 59 s once
    "optimize mixtral-8x7b --on gb200 --gpus 256 --sample-size 1e12 --overlap tp,ep",
    "elastic nemotron-h-56b --on rtx-4090 --gpus 7 --global-batch-tokens 1e12",
    "compare minimax-text-01 --on v100-sxm-16gb --gpus 1",
    "estimate deepseek-v3 --on h100-sxm --gpus 720720",
    "fleet examples/quarter.toml",
]
PATIENCE = 12.0  # s CPU, budget of each
WARM = 0.010  # s, budget of a call in a process that has answered the same question before
WARM_CALL = """
import statistics
import sys
import time
import ironlaw
model, device, gpus, *plan = sys.argv[1:]
options = {name: int(value) if value.isdecimal() else value for name, value in (item.split("=") for item in plan)}
taken = []
for _ in range(32):
    start = time.process_time()
    ironlaw.estimate(model, on=device, gpus=int(gpus), **options)
    taken.append(time.process_time() - start)
print(statistics.median(taken[1:]))
"""
GIVEN = {  # the plan of a warm call
    "llama-3-70b on 512 h100-sxm": ["tp=8", "pp=4", "vpp=1", "zero=1", "micro_batch_size=1", "global_batch_size=512", "recompute=none"],
    "deepseek-v3 on 2048 h800-sxm": [
        "tp=1", "pp=16", "vpp=1", "ep=64", "zero=1", "micro_batch_size=1", "global_batch_size=15360", "seq_len=4096", "recompute=selective",
        "precision=fp8-block",
    ],
}  # fmt: skip
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
    """User and system time of one child process.

    One thread of BLAS: ironlaw starts no others, and numpy's own spin for a time that depends on the machine and its load.
    """
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"} | {"OPENBLAS_NUM_THREADS": "1"}
    done = subprocess.run([sys.executable, *arguments], check=False, stdout=subprocess.DEVNULL, env=environment)
    if done.returncode not in (0, 1, 2):  # 1: the answer is no; 2: a question of strange values is refused
        raise SystemExit(f"{arguments}: exit status {done.returncode}")
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def run_in_turn(commands: dict[str, list[str]], runs: int = RUNS) -> dict[str, list[float]]:
    """CPU seconds of each command, run after one another ``runs`` times after a warm-up."""
    for command in commands.values():
        cpu_seconds(command)
    taken: dict[str, list[float]] = {name: [] for name in commands}
    for _ in range(runs):
        for name, command in commands.items():
            taken[name].append(cpu_seconds(command))
    return taken


def warm_calls() -> list[Figure]:
    """CPU time of a call with the plan given, after a first one in the same process."""
    found = []
    for question, plan in GIVEN.items():
        model, _, gpus, device = question.split()
        arguments = [sys.executable, "-c", WARM_CALL, model, device, gpus, *plan]
        printed = subprocess.run(arguments, check=True, capture_output=True, text=True).stdout
        found.append(Figure("warm call, plan given", question, 1e3 * float(printed), "ms CPU", 1e3 * WARM))
    return found


def open_mixtures() -> list[Figure]:
    """CPU time of open estimates of mixtures, in the time of importing numpy: the least of three of each, in turn."""
    commands = {NUMPY: ["-c", NUMPY]}
    for question, more in MIXTURES.items():
        model, _, gpus, device = question.split()
        commands[question] = ["-m", "ironlaw", "estimate", model, "--on", device, "--gpus", gpus, *more]
    least = {name: min(seconds) for name, seconds in run_in_turn(commands, 3).items()}
    return [Figure("open mixture", f"{name}, over {NUMPY}", least[name] / least[NUMPY], "times", MIXTURE) for name in MIXTURES]


def strange_questions() -> list[Figure]:
    """CPU time of questions with strange values."""
    return [Figure("strange question", words, cpu_seconds(["-m", "ironlaw", *words.split()]), "s CPU", PATIENCE) for words in STRANGE]


def figures() -> list[Figure]:
    """CPU time of the command, of a call after others, and of one call with many plans."""
    taken = run_in_turn(
        {
            NUMPY: ["-c", NUMPY],
            "estimate, plan given": ["-m", "ironlaw", *ASK],
            "estimate, plan chosen": ["-m", "ironlaw", *OPEN],
            "--help": ["-m", "ironlaw", "--help"],
        }
    )
    found = [
        Figure("start-up", name, statistics.median(seconds), "s CPU", 0.25 if name == "--help" else None) for name, seconds in taken.items()
    ]
    for name, budget in BUDGETS.items():
        ratio = statistics.median(a / b for a, b in zip(taken[name], taken[NUMPY], strict=True))
        found.append(Figure("start-up", f"{name}, over {NUMPY}", ratio, "times", budget))
    found += warm_calls() + open_mixtures() + strange_questions()
    printed = subprocess.run([sys.executable, "-c", ONE_CALL], check=True, capture_output=True, text=True).stdout.split()
    plans, seconds = int(printed[0]), float(printed[1])
    return [*found, Figure("one call", f"{plans} plans", seconds, "s", 6.0), Figure("one call", "rate", plans / seconds, "plans/s")]
