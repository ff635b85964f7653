"""What a user's own runs say of the level of a prediction near them: ``validate --mine`` writes it, ``--correction`` applies it.

The log error of a prediction is taken as a Gaussian process over ``distance``: two runs of one publisher at distance d have correlation
``share exp(-d / reach)``, and a run has ``1 - share`` of its variance to itself. Both constants are learned from published runs with
families left out (``ironlaw validate fit``). Formulas: Rasmussen and Williams, Gaussian Processes for Machine Learning, 2006, section 2.2.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from datetime import date
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ironlaw.errors import InputError, QuestionError, quote
from ironlaw.estimate.evidence.distance import NAMES, SIZES, Positions, distance
from ironlaw.files import check_output, is_file, parse_toml, read_text, read_toml, write_file
from ironlaw.frozen import Frozen

MOST_ROWS = 500  # of a correction file; more runs add nothing but time
PRIOR_ROWS = 4.0  # runs as which the published spread counts beside the spread of the user's own runs
_MAX_BYTES = 400_000
MOST_CHARACTERS = 200  # of a name of a run: numpy pads every name of a column to the longest
_FACTOR = (0.1, 10.0)  # measured over predicted step time; beyond it a unit is wrong
_NORMAL_80 = 1.2815515655446004  # half-width of the central 80 % of a normal distribution, over its standard deviation


class Level(NamedTuple):
    """What own runs say of some rows: a factor on the step, the share of its variance that is left, and how far the runs are."""

    factor: Any
    left: Any
    nearest: Any
    label: str


def covariance(gaps: Any, share: float, reach: float) -> Any:
    """Correlation of the log errors of two runs of one publisher at a distance: ``share exp(-d / reach)``.

    >>> float(covariance(0.0, 0.9, 0.5)), round(float(covariance(0.5, 0.9, 0.5)), 3)
    (0.9, 0.331)
    """
    return share * np.exp(-np.asarray(gaps) / reach)


def posterior(cross: Any, own: Any, logs: Any, share: float) -> tuple[Any, Any]:
    """Mean of the log error of rows, and the share of its variance that is left, from the log errors of own runs.

    ``cross`` [rows, runs] and ``own`` [runs, runs] are covariances; ``mean = C K^-1 e`` and ``left = 1 - C K^-1 C'`` with
    ``K = own + (1 - share) I``. With one run at distance 0 the mean is ``share`` times its error.

    >>> mean, left = posterior(np.array([[0.8]]), np.array([[0.8]]), np.array([0.2]), 0.8)
    >>> round(float(mean[0]), 3), round(float(left[0]), 3)
    (0.16, 0.36)
    """
    solved = np.linalg.solve(own + (1.0 - share) * np.eye(len(own)), np.concatenate([np.atleast_2d(logs), cross]).T)
    return cross @ solved[:, 0], 1.0 - np.einsum("ij,ji->i", cross, solved[:, 1:])


class Correction(Frozen):
    """Own runs, where they are, their ``log(measured / predicted)``, and the constants of the law."""

    label: str
    share: float
    reach: float
    stretch: float  # of what is left of a band: above 1 where own runs are further from each other than published ones
    places: Positions
    logs: Any

    def level(self, asked: Positions) -> Level:
        """What the runs say of the rows of ``asked``: columns of one value a row."""
        gaps = np.asarray(distance({n: np.reshape(np.asarray(c), (-1, 1)) for n, c in asked.items()}, self.places))
        own = distance({n: np.asarray(c)[:, None] for n, c in self.places.items()}, self.places)
        mean, left = posterior(covariance(gaps, self.share, self.reach), covariance(own, self.share, self.reach), self.logs, self.share)
        return Level(np.exp(mean), np.sqrt(np.maximum(left, 0.0)) * self.stretch, gaps.min(axis=1), self.label)


class OwnRun(NamedTuple):
    """A scored run of the user: its name, where it is, measured over predicted step time, and the half-width of its band in log."""

    id: str
    place: Mapping[str, Any]
    ratio: float
    half_width: float


def spread_of(logs: Any, half_widths: Any, own: Any, share: float) -> float:
    """The spread of own runs over that of their bands: ``sqrt((PRIOR_ROWS + z' K^-1 z) / (PRIOR_ROWS + n))``, z in standard deviations.

    1 where they are as far from their predictions as their bands say. Few runs hardly move it.

    >>> one = np.ones((1, 1))
    >>> [round(spread_of(np.array([x]), np.array([0.2]), 0.8 * one, 0.8), 1) for x in (0.0, 0.156, 0.6)]
    [0.9, 1.0, 1.9]
    """
    z = _NORMAL_80 * np.asarray(logs) / np.asarray(half_widths)
    squares = float(z @ np.linalg.solve(own + (1.0 - share) * np.eye(len(own)), z))
    return math.sqrt((PRIOR_ROWS + squares) / (PRIOR_ROWS + len(z)))


def check_correction_target(path: str) -> None:
    """Refuse a name that no correction can be written to: one of a file that is no correction, or of none that can be made."""
    check_output(path, "--correction")
    if is_file(path) and not _replaceable(Path(path)):
        raise QuestionError(f"--correction {path}: the file exists and is not a correction file: give another name")


def write_correction(path: Path, runs: Sequence[OwnRun], source: Path, share: float, reach: float) -> Correction:
    """Write the runs of a correction with the constants of its law; a failed write leaves no file. Returns what a question reads.

    Refuses to overwrite a file that is no correction, and to write one that ``read_correction`` would refuse.
    """
    check_correction_target(str(path))
    if len(runs) > MOST_ROWS:
        raise QuestionError(
            f"{source.name}: {len(runs)} scored runs; a correction takes at most {MOST_ROWS}: give those near your questions"
        )
    for run in runs:
        if not _FACTOR[0] <= run.ratio <= _FACTOR[1]:
            raise QuestionError(
                f"{source.name}: the step of {run.id} took {run.ratio:.3g} times its prediction: too far for a correction: check the units;"
                f" a factor must be from {_FACTOR[0]:g} to {_FACTOR[1]:g}"
            )
    text = _correction_text(runs, source, share, reach)
    write_file(path, text.encode(), "--correction")
    return _correction_of(parse_toml(text, str(path)), path)


def _correction_text(runs: Sequence[OwnRun], source: Path, share: float, reach: float) -> str:
    """The file of a correction: label, constants, and one block a run."""
    name = "".join(c if c.isprintable() else "?" for c in source.name)
    count = f"{len(runs)} run{'s' if len(runs) != 1 else ''}"
    places = {column: np.array([run.place[column] for run in runs]) for column in (*NAMES, *SIZES)}
    own = covariance(distance({n: c[:, None] for n, c in places.items()}, places), share, reach)
    logs, widths = np.log([run.ratio for run in runs]), np.array([run.half_width for run in runs])
    lines = [
        "# Written by ironlaw validate --mine: measured over predicted step time of your own runs.",
        f"label = {json.dumps(f'{name}, {count}, {date.today().isoformat()}', ensure_ascii=False)}",
        f"share = {share:.4g}  # of the error of a run that an equal run shares, from published families left out",
        f"reach = {reach:.4g}  # distance at which 1/e of it is left",
        f"stretch = {spread_of(logs, widths, own, share):.4f}  # spread of these runs over that of their bands",
    ]
    for run in runs:
        lines += ["", "[[run]]", f"id = {_text(run.id)}", f"measured_over_predicted = {run.ratio:.6g}"]
        lines += [f"{column} = {_text(run.place[column])}" for column in NAMES]
        lines += [f"{column} = {float(run.place[column]):.10g}" for column in SIZES]
    return "\n".join(lines) + "\n"


def _text(value: Any) -> str:
    """A value of a correction file in TOML: true, false, or a string without control characters."""
    if isinstance(value, (bool, np.bool_)):
        return str(bool(value)).lower()
    return json.dumps("".join(c if c.isprintable() else "?" for c in str(value)), ensure_ascii=False)


def _replaceable(path: Path) -> bool:
    """True for a file that is an earlier correction, or empty."""
    try:
        text = read_text(path, "a correction", _MAX_BYTES, pipes=False)
    except InputError:
        return False
    return not text or text.startswith("# Written by ironlaw validate --mine")


def read_correction(path: str) -> Correction:
    """The correction of a file; InputError names what is wrong with it."""
    file = Path(path)
    return _correction_of(read_toml(file, "a correction", _MAX_BYTES), file)


def _correction_of(table: Mapping[str, Any], file: Path) -> Correction:
    """The correction of a table of TOML."""
    limits = (("share", 0.0, 1.0), ("reach", 0.01, 100.0), ("stretch", 0.0, 100.0))
    share, reach, stretch = (_number(file, table, name, low, high) for name, low, high in limits)
    runs = table.get("run")
    if not isinstance(runs, list) or not 1 <= len(runs) <= MOST_ROWS or not all(isinstance(run, dict) for run in runs):
        raise InputError(f"{file}: needs 1 to {MOST_ROWS} blocks [[run]] (ironlaw validate --mine writes them)")
    places: dict[str, Any] = {}
    for name in NAMES:
        kind = str if name in ("stack", "device", "architecture", "format") else bool
        for at, run in enumerate(runs, 1):
            value = run.get(name)
            if not isinstance(value, kind) or len(str(value)) > MOST_CHARACTERS:
                form = f"a text of at most {MOST_CHARACTERS} characters" if kind is str else "true or false"
                raise InputError(f"{file}: {name} of run {at} is {quote(value)}, must be {form}")
        places[name] = np.array([run[name] for run in runs])
    for name in SIZES:
        places[name] = np.array([_number(file, run, name, 1.0, 1e18) for run in runs])
    logs = np.log([_number(file, run, "measured_over_predicted", *_FACTOR) for run in runs])
    return Correction(str(table.get("label", file.name))[:MOST_CHARACTERS], share, reach, stretch, places, logs)


def _number(file: Path, table: Mapping[str, Any], name: str, low: float, high: float) -> float:
    """A number of a correction file between two ends."""
    value = table.get(name)
    if not isinstance(value, (int, float)) or isinstance(value, bool) or not low <= value <= high:
        raise InputError(f"{file}: {name} is {quote(value)}, must be a number from {low:g} to {high:g} (ironlaw validate --mine writes it)")
    return float(value)
