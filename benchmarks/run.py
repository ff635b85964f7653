"""Measure speed and memory against their budgets, and print a table.

    python benchmarks/run.py                     all parts; exit status 0 whatever the figures are
    python benchmarks/run.py --check             exit status 1 where a figure exceeds its budget
    python benchmarks/run.py traces --full       one part: processes, search, comparisons, traces, page or tests

``processes``: start-up and one call with many plans. ``search``: large search spaces. ``comparisons``: accelerators side by side.
``traces``: reading and diagnosing a trace. ``page``: what ``ironlaw serve`` weighs and how fast it answers.
``tests``: the tests that have a budget of CPU time. A wrong answer is exit status 1 in any case.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path

import comparisons
import page
import processes
import search
import traces
from figures import Figure, WrongError, table

ROOT = Path(__file__).resolve().parents[1]


def timed_tests() -> list[Figure]:
    """The largest CPU time of every test function that has a budget."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "budgets.jsonl"
        subprocess.run([sys.executable, "-m", "pytest", "-m", "timed", f"--budgets={file}", "tests"], cwd=ROOT, check=True)
        rows = [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]
    worst: dict[tuple[str, float], float] = {}
    for row in rows:
        key = row["test"].partition("[")[0], row["budget"]
        worst[key] = max(worst.get(key, 0.0), row["seconds"])
    return [Figure(name.rpartition("::")[0], name.rpartition("::")[2], taken, "s CPU", budget) for (name, budget), taken in worst.items()]


def main() -> int:
    """Measure the chosen parts; 1 where an answer is wrong, or with ``--check`` a figure over its budget."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="*", metavar="PART", help="processes, search, comparisons, traces, page or tests (default: all)")
    parser.add_argument("--check", action="store_true", help="exit with 1 where a figure exceeds its budget")
    parser.add_argument("--out", type=Path, help="write the table to this file too")
    parser.add_argument("--full", action="store_true", help="traces: repeat the trace to 1 GB instead of 220 MB")
    parser.add_argument("--trace", type=Path, help="traces: a real trace instead of the made one")
    parser.add_argument("--rival", metavar="PYTHON", help="traces: a Python that has HolisticTraceAnalysis, to compare with")
    given = parser.parse_args()
    known = {
        "processes": processes.figures,
        "search": search.figures,
        "comparisons": comparisons.figures,
        "traces": lambda: traces.figures(given.trace, given.full, given.rival),
        "page": page.figures,
        "tests": timed_tests,
    }
    if unknown := set(given.parts) - set(known):
        parser.error(f"no part {', '.join(sorted(unknown))}; parts are {', '.join(known)}")
    found: list[Figure] = []
    wrong = []
    for part in given.parts or known:
        try:
            figures = known[part]()
        except WrongError as error:
            wrong.append(f"{part}: {error}")
            continue
        print(table(figures), flush=True)
        found += figures
    over = [f"over budget: {one.subject}: {one.name}" for one in found if one.over]
    last = "\n".join([*over, *(f"wrong: {what}" for what in wrong)]) or f"{len(found)} figures, all within their budgets"
    print(last)
    if given.out:
        given.out.parent.mkdir(parents=True, exist_ok=True)
        given.out.write_text(f"{table(found)}\n{last}\n", encoding="utf-8")
    return 1 if wrong or (given.check and over) else 0


if __name__ == "__main__":
    sys.exit(main())
