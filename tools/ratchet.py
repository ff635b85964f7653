"""Write how wrong held-out predictions of the published runs are, family by family, so that no change makes them worse unseen.

    python tools/ratchet.py            print what moved and tighten tests/ratchet.json; write nothing, exit 1 if a family got worse
    python tools/ratchet.py --check    print what moved, write nothing, exit 1 if a family got worse

The median and the 90th percentile of |predicted / measured - 1| of each family of the headline, by constants that never saw it.
A figure that is written is the lower of old and new, so that growth within the slack does not add up.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

FILE = Path(__file__).parents[1] / "tests" / "ratchet.json"
SLACK = 0.002  # what a figure may grow by before it counts: rounding, another numpy
FIGURES = ("median", "p90")
Figures = Mapping[str, Mapping[str, float]]


def measure() -> dict[str, dict[str, float]]:
    """The figures of every family of the headline, as the code stands."""
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
    """The figures of the file; none where there is no file."""
    return dict(json.loads(FILE.read_text(encoding="utf-8"))) if FILE.is_file() else {}


def moved(old: Figures, new: Figures) -> Iterator[tuple[str, str, float | None, float | None]]:
    """(family, figure, old, new) of all that differs; None where a family is on one side only."""
    for family in dict.fromkeys((*old, *new)):
        for name in ("n", *FIGURES):
            before, after = old.get(family, {}).get(name), new.get(family, {}).get(name)
            if before != after:
                yield family, name, before, after


def worse(old: Figures, new: Figures) -> list[str]:
    """A line for every figure that grew by more than the slack, and for every family that is gone."""
    lines = [f"{family}: no run is scored any more" for family in old if family not in new]
    for family, name, before, after in moved(old, new):
        if name in FIGURES and before is not None and after is not None and after > before + SLACK:
            lines.append(f"{family}: {name} |error| {before:.2%} -> {after:.2%}")
    return lines


def tightened(old: Figures, new: Figures) -> dict[str, dict[str, float]]:
    """The new figures, none above what it was.

    >>> tightened({"a": {"n": 1, "median": 0.1, "p90": 0.3}}, {"a": {"n": 2, "median": 0.101, "p90": 0.2}})
    {'a': {'n': 2, 'median': 0.1, 'p90': 0.2}}
    """
    return {
        family: {name: min(value, old.get(family, {}).get(name, value)) if name in FIGURES else value for name, value in figures.items()}
        for family, figures in new.items()
    }


def main(arguments: list[str]) -> int:
    """Print what moved; write it unless asked only to check."""
    if arguments not in ([], ["--check"]):
        print(__doc__)
        return 2
    old, new = read(), measure()
    changes = list(moved(old, new))
    for family, name, before, after in changes:
        print(f"{family:<20}{name:<8}{_told(name, before):>9} -> {_told(name, after)}")
    if not changes:
        print("nothing moved")
    lines = worse(old, new)
    for line in lines:
        print(f"worse, {line}")
    if arguments or lines:
        return 1 if lines else 0
    FILE.write_text(json.dumps(tightened(old, new), indent=1) + "\n", encoding="utf-8")
    print(f"wrote {FILE.name}")
    return 0


def _told(name: str, value: float | None) -> str:
    return "-" if value is None else f"{value:g}" if name == "n" else f"{value:.2%}"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
