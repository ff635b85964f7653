"""Reading and diagnosing a trace against its budgets: ``orjson.loads`` of the same bytes, and the tool people use today.

Run with ``make bench``: a made trace of 55 MB, and the same repeated to 220 MB; ``--full`` repeats it to 1 GB, ``--trace FILE`` takes a
real one, ``--rival PYTHON`` also runs HolisticTraceAnalysis with that Python (``make bench-rivals``). Every figure is of a fresh process,
ours a whole one from start to exit, and the best of a few taken in turn, as the machines this runs on share their cores. Exits 1 over budget.
"""

from __future__ import annotations

import argparse
import gzip
import os
import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

RATIO, RIVAL_RATIO, MEMORY = 2.5, 3.0, 3 * 2**30  # times orjson.loads, times faster than the rival, bytes
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


def case(file: Path, runs: int, rival: str | None, orjson: bool, limit: float) -> list[str]:
    """Measure one file, print a line for each reader, and return what is over budget."""
    size = file.stat().st_size
    commands = {"ironlaw": [part.replace("FILE", str(file)) for part in OURS]}
    if orjson:
        commands["orjson.loads"] = [sys.executable, "-c", ORJSON, str(file)]
    if rival:
        commands["HTA"] = [rival, "-c", RIVAL, str(file)]
    found = in_turn(commands, {name: 1 if name == "HTA" else runs for name in commands}, limit)
    ours = found["ironlaw"]
    print(f"{file.name}, {size / MB:,.0f} MB")
    for name, one in found.items():
        if one.status:
            print(f"  {name:<14}did not finish: ended with status {one.status} after {one.seconds:.0f} s (limit {limit:.0f})")
            continue
        print(
            f"  {name:<14}{one.seconds:8.2f} s {one.memory / 2**20:8,.0f} MiB   ironlaw takes {ours.seconds / one.seconds:5.2f} of its time"
        )
    over = []
    if ours.status:
        over.append("ironlaw failed")
    if ours.memory > MEMORY:
        over.append(f"memory {ours.memory / 2**30:.2f} GiB (budget {MEMORY / 2**30:.0f})")
    if orjson and found["orjson.loads"].status == 0 and ours.seconds > RATIO * found["orjson.loads"].seconds:
        over.append(f"{ours.seconds / found['orjson.loads'].seconds:.2f} times orjson.loads (budget {RATIO})")
    if rival and found["HTA"].status == 0:
        if ours.seconds * RIVAL_RATIO > found["HTA"].seconds:
            over.append(f"{found['HTA'].seconds / ours.seconds:.2f} times faster than HTA (budget {RIVAL_RATIO})")
        if ours.memory > found["HTA"].memory:
            over.append("more memory than HTA")
    return [f"{file.name}: {what}" for what in over]


def made(folder: Path, trace: Path | None, megabytes: tuple[int, ...]) -> list[Path]:
    """The files to measure: the first as made or given, the others it repeated. Made by processes of their own, so that this one stays small."""
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


def main() -> int:
    """Measure every case."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--full", action="store_true", help="repeat the trace to 1 GB instead of 220 MB")
    parser.add_argument("--trace", type=Path, help="a real trace instead of the made one")
    parser.add_argument("--rival", metavar="PYTHON", help="a Python that has HolisticTraceAnalysis")
    parser.add_argument("--runs", type=int, default=3, help="processes a reader and file; large files get fewer")
    parser.add_argument("--limit", type=float, default=600.0, help="seconds a process may take")
    given = parser.parse_args()
    over = []
    with tempfile.TemporaryDirectory() as folder:
        for file in made(Path(folder), given.trace, (55, 1000 if given.full else 220)):
            runs = max(1, min(given.runs, round(given.runs * 70 * MB / file.stat().st_size)))
            over += case(file, runs, given.rival, True, given.limit)
            file.unlink()
    for name in over:
        print(f"over budget: {name}")
    return 1 if over else 0


if __name__ == "__main__":
    sys.exit(main())
