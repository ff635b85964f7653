"""Record the errors of held-out predictions in tests/ratchet.json, family by family, so that no change makes them worse unnoticed.

    python tools/ratchet.py            print what moved and write it; where a family got worse, write nothing and exit with 1
    python tools/ratchet.py --check    print what moved; where a family got worse, exit with 1

The errors are the median and the 90th percentile of |predicted / measured - 1| of each family of the headline, predicted by constants
that were fitted without it. The file stores the lower of the old and the new figure, so that growth within the slack does not add up.
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


def main(arguments: list[str] | None = None) -> int:
    """Print what moved, and write it unless asked only to check."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="write nothing; exit with 1 where a family got worse")
    check = parser.parse_args(arguments).check
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
