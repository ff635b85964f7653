"""Record the errors of held-out predictions in tests/ratchet.json, family by family, so that no change makes them worse unnoticed.

    python tools/ratchet.py            print what moved and write it; where a family got worse, write nothing and exit with 1
    python tools/ratchet.py --check    print what moved; where a family got worse, exit with 1
    python tools/ratchet.py --plans    the same for the figures of best plans in tests/ratchet_plans.json (about two minutes)

The errors are the median and the 90th percentile of |predicted / measured - 1| of each family of the headline, predicted by constants
that were fitted without it. The file stores the better of the old and the new figure, so that growth within the slack does not add up.
The figures of best plans are those of ``ironlaw validate --plans`` that a change of laws or of the search may move.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

FILE = Path(__file__).parents[1] / "tests" / "ratchet.json"
SLACK = 0.002  # how much a figure may grow before it counts: rounding, another numpy
FIGURES = ("median", "p90")
PLANS_FILE = FILE.with_name("ratchet_plans.json")
# figures of best plans: how much each may get worse. Above 0 it may grow by that, below 0 it may fall by that
PLANS = {
    "ratio_median_dense": 0.01,
    "ratio_median_mixtures": 0.01,
    "open_above_1_25": 1.0,
    "ratio_above_1_25": 0.01,
    "refused": 0.0,
    "never_measured_unnamed": 0.0,
    "above_ceiling_unnamed": 0.0,
    "slope": -0.01,
    "slope_families": -0.01,
    "slope_printed": -0.01,
    "regret": 0.002,
    "bubble_error_max": 0.002,
}
Figures = Mapping[str, Mapping[str, float]]


def measure() -> dict[str, dict[str, float]]:
    """The figures of every family of the headline, by the present code."""
    from ironlaw.validate.fit import held_out_times, read_record
    from ironlaw.validate.predict import prepare
    from ironlaw.validate.runs import read_runs
    from ironlaw.validate.score import score

    prepared, _ = prepare(read_runs()[0])
    scored = score(prepared, held_out_times(prepared, read_record()[0]), [])
    made = {}
    for family in dict.fromkeys(prepared.families[prepared.counts].tolist()):
        found = scored.summary(family, prepared.counts & (prepared.families == family))
        made[family] = {"n": found.n, "median": round(found.median_abs_error, 4), "p90": round(found.p90_abs_error, 4)}
    return made


def read() -> dict[str, dict[str, float]]:
    """The figures of the file; no figures without a file."""
    return dict(json.loads(FILE.read_text(encoding="utf-8"))) if FILE.is_file() else {}


def moved(old: Figures, new: Figures) -> Iterator[tuple[str, str, float | None, float | None]]:
    """(family, figure, old, new) of every difference; None for a family that only one side has."""
    for family in dict.fromkeys((*old, *new)):
        for name in ("n", *FIGURES):
            before, after = old.get(family, {}).get(name), new.get(family, {}).get(name)
            if before != after:
                yield family, name, before, after


def worse(old: Figures, new: Figures) -> list[str]:
    """One line for every figure that grew by more than the slack, and for every missing family."""
    lines = [f"{family}: no run is scored any more" for family in old if family not in new]
    for family, name, before, after in moved(old, new):
        if name in FIGURES and before is not None and after is not None and after > before + SLACK:
            lines.append(f"{family}: {name} |error| {before:.2%} -> {after:.2%}")
    return lines


def tightened(old: Figures, new: Figures) -> dict[str, dict[str, float]]:
    """The new figures, none above its old value.

    >>> tightened({"a": {"n": 1, "median": 0.1, "p90": 0.3}}, {"a": {"n": 2, "median": 0.101, "p90": 0.2}})
    {'a': {'n': 2, 'median': 0.1, 'p90': 0.2}}
    """
    return {
        family: {name: min(value, old.get(family, {}).get(name, value)) if name in FIGURES else value for name, value in figures.items()}
        for family, figures in new.items()
    }


def measure_plans() -> dict[str, float]:
    """The figures of best plans, by the present code."""
    from ironlaw.report.estimate import page
    from ironlaw.validate import jobs, plans

    prepared, predicted = plans.gather()
    figures = jobs.summary(jobs.compare_jobs(prepared, page, (), predicted), prepared, predicted)
    figures["open_above_1_25"] = figures["above_1_25"] - figures["argued"]
    return {name: round(float(figures[name]), 4) for name in PLANS}


def read_plans() -> dict[str, float]:
    """The figures of best plans of the file; none without a file."""
    return dict(json.loads(PLANS_FILE.read_text(encoding="utf-8"))) if PLANS_FILE.is_file() else {}


def worse_plans(old: Mapping[str, float], new: Mapping[str, float]) -> list[str]:
    """One line for every figure of best plans that got worse by more than its slack.

    >>> worse_plans({"refused": 0.0, "slope": 0.76, "regret": 0.01}, {"refused": 1.0, "slope": 0.7, "regret": 0.011})
    ['best plans: refused 0 -> 1', 'best plans: slope 0.76 -> 0.7']
    """
    lines = []
    for name, slack in PLANS.items():
        before, after = old.get(name), new.get(name)
        if before is not None and after is not None and (after - before > slack if slack >= 0.0 else after - before < slack):
            lines.append(f"best plans: {name} {before:g} -> {after:g}")
    return lines


def tightened_plans(old: Mapping[str, float], new: Mapping[str, float]) -> dict[str, float]:
    """The new figures of best plans, none worse than its old value.

    >>> tightened_plans({"regret": 0.01, "slope": 0.76}, {"regret": 0.011, "slope": 0.78})
    {'regret': 0.01, 'slope': 0.78}
    """
    return {name: (min if PLANS[name] >= 0.0 else max)(value, old.get(name, value)) for name, value in new.items()}


def watch_plans(check: bool) -> int:
    """Print the figures of best plans that moved, and write them unless asked only to check."""
    old, new = read_plans(), measure_plans()
    for name in PLANS:
        if old.get(name) != new[name]:
            print(f"{name:<24}{old.get(name, '-')!s:>9} -> {new[name]:g}")
    lines = worse_plans(old, new)
    for line in lines:
        print(f"worse, {line}")
    if not (check or lines):
        PLANS_FILE.write_text(json.dumps(tightened_plans(old, new), indent=1) + "\n", encoding="utf-8")
        print(f"wrote {PLANS_FILE.name}")
    return 1 if lines else 0


def main(arguments: list[str] | None = None) -> int:
    """Print what moved, and write it unless asked only to check."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="write nothing; exit with 1 where a family got worse")
    parser.add_argument("--plans", action="store_true", help="the figures of best plans in place of the errors of families")
    given = parser.parse_args(arguments)
    check = given.check
    if given.plans:
        return watch_plans(check)
    old, new = read(), measure()
    changes = list(moved(old, new))
    for family, name, before, after in changes:
        print(f"{family:<20}{name:<8}{show(name, before):>9} -> {show(name, after)}")
    if not changes:
        print("nothing moved")
    lines = worse(old, new)
    for line in lines:
        print(f"worse, {line}")
    if check or lines:
        return 1 if lines else 0
    FILE.write_text(json.dumps(tightened(old, new), indent=1) + "\n", encoding="utf-8")
    print(f"wrote {FILE.name}")
    return 0


def show(name: str, value: float | None) -> str:
    """A figure as it is printed."""
    return "-" if value is None else f"{value:g}" if name == "n" else f"{value:.2%}"


if __name__ == "__main__":
    sys.exit(main())
