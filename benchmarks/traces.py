"""Reading and diagnosing a trace, relative to ``orjson.loads`` of the same bytes and to the tool people use today.

The trace is a made one of 55 MB, and the same repeated to 220 MB. Every figure is of a new process, ours a whole one from start to exit,
and the best of a few taken in turn: other programs share the machine.
"""

from __future__ import annotations

import gzip
import os
import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from figures import Figure, WrongError

RATIO, RIVAL_RATIO, MEMORY = 2.5, 3.0, 3 * 2**10  # times orjson.loads, times faster than the rival, MiB
RUNS, LIMIT = 3, 600.0  # processes a reader and file, seconds a process may take
TOOL = Path(__file__).with_name("made_trace.py")
MB = 1e6

# What is measured; FILE stands for the trace. Of orjson.loads only the call is counted, of the others the whole process.
OURS = [sys.executable, "-m", "ironlaw", "diagnose", "FILE", "--json"]
FINISHED = (0, 4)  # 4: diagnosed, and no verdict
ORJSON = """
import sys, time
import orjson
data = open(sys.argv[1], "rb").read()
start = time.perf_counter()
value = orjson.loads(data)
print(time.perf_counter() - start)
"""
RIVAL = """
import sys, time, warnings
warnings.filterwarnings("ignore")
from hta.trace_analysis import TraceAnalysis
analysis = TraceAnalysis(trace_files={0: sys.argv[1]}, trace_dir="/")
analysis.get_temporal_breakdown(visualize=False)
analysis.get_comm_comp_overlap(visualize=False)
analysis.get_gpu_kernel_breakdown(visualize=False)
analysis.get_idle_time_breakdown(visualize=False)
"""


@dataclass(frozen=True)
class Taken:
    """One process: seconds, peak memory in bytes, and how it ended."""

    seconds: float
    memory: int
    status: int


def taken(command: list[str], limit: float) -> Taken:
    """Run ``command`` and wait for it.

    ``status`` is 0, or -9 where it did not end within ``limit`` seconds or ran out of memory.
    """
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
    start = time.perf_counter()
    with tempfile.TemporaryFile() as said, tempfile.TemporaryFile() as wrong:
        process = subprocess.Popen(command, stdout=said, stderr=wrong, env=environment)
        try:
            while True:
                ended, status, used = os.wait4(process.pid, os.WNOHANG)
                if ended:
                    break
                if time.perf_counter() - start > limit:
                    process.kill()
                time.sleep(0.002)
        except BaseException:
            process.kill()
            raise
        seconds = time.perf_counter() - start
        process.returncode = os.waitstatus_to_exitcode(status)
        said.seek(0)
        last = said.read().split()[-1:]
        if process.returncode not in FINISHED:
            wrong.seek(0)
            sys.stderr.write(wrong.read().decode(errors="replace")[-2000:])
    finished = process.returncode in FINISHED
    counted = float(last[0]) if command[2] is ORJSON and finished else seconds
    return Taken(counted, used.ru_maxrss * (1 if sys.platform == "darwin" else 1024), 0 if finished else process.returncode)


def in_turn(commands: dict[str, list[str]], runs: dict[str, int], limit: float) -> dict[str, Taken]:
    """The best of each command's runs; the memory is the largest."""
    found: dict[str, list[Taken]] = {name: [] for name in commands}
    for turn in range(max(runs.values())):
        for name, command in commands.items():
            if turn < runs[name]:
                found[name].append(taken(command, limit))
    return {
        name: Taken(min(t.seconds for t in all_), max(t.memory for t in all_), max(abs(t.status) for t in all_))
        for name, all_ in found.items()
    }


def measure_file(file: Path, runs: int, rival: str | None) -> list[Figure]:
    """Seconds and memory of every reader of one file; a diagnosis that fails raises."""
    commands = {"ironlaw": [part.replace("FILE", str(file)) for part in OURS], "orjson.loads": [sys.executable, "-c", ORJSON, str(file)]}
    if rival:
        commands["HTA"] = [rival, "-c", RIVAL, str(file)]
    found = in_turn(commands, {name: 1 if name == "HTA" else runs for name in commands}, LIMIT)
    ours, subject = found["ironlaw"], f"{file.name}, {file.stat().st_size / MB:,.0f} MB"
    if ours.status:
        raise WrongError(f"{file.name}: ironlaw diagnose ended with status {ours.status} after {ours.seconds:.0f} s")
    figures = []
    for name, one in found.items():
        if one.status:
            print(f"{file.name}: {name} did not finish: ended with status {one.status} after {one.seconds:.0f} s (limit {LIMIT:.0f})")
            continue
        figures.append(Figure(subject, name, one.seconds, "s"))
        memory = MEMORY if name == "ironlaw" else None
        figures.append(Figure(subject, f"{name}, memory", one.memory / 2**20, "MiB", memory))
        if name == "orjson.loads":
            figures.append(Figure(subject, "ironlaw over orjson.loads", ours.seconds / one.seconds, "times", RATIO))
        if name == "HTA":
            figures.append(Figure(subject, "ironlaw over HTA", ours.seconds / one.seconds, "times", 1 / RIVAL_RATIO))
            figures.append(Figure(subject, "ironlaw over HTA, memory", ours.memory / one.memory, "times", 1.0))
    return figures


def make_files(folder: Path, trace: Path | None, megabytes: tuple[int, ...]) -> list[Path]:
    """The first file made or given, the others repeat it. Other processes write them: this one stays small."""
    first = folder / (f"{trace.name.split('.')[0]}.json" if trace else f"made-{megabytes[0]}.json")
    if trace is None:
        subprocess.run([sys.executable, str(TOOL), "make", str(first), str(megabytes[0])], check=True)
    else:
        with gzip.open(trace) if trace.suffix == ".gz" else trace.open("rb") as source, first.open("wb") as target:
            shutil.copyfileobj(source, target)
    found = [first]
    for size in megabytes[1:]:
        found.append(folder / f"{first.stem}-to-{size}.json")
        subprocess.run([sys.executable, str(TOOL), "repeat", str(first), str(found[-1]), str(size)], check=True)
    return found


def figures(trace: Path | None, full: bool, rival: str | None) -> list[Figure]:
    """Every figure of two files: a small one, and the same repeated to 220 MB, or to 1 GB where ``full``."""
    found = []
    with tempfile.TemporaryDirectory() as folder:
        for file in make_files(Path(folder), trace, (55, 1000 if full else 220)):
            runs = max(1, min(RUNS, round(RUNS * 70 * MB / file.stat().st_size)))
            found += measure_file(file, runs, rival)
            file.unlink()
    return found
