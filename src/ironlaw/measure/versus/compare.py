"""A measured step against the estimate of the same run: which terms make the difference, largest first.

A trace and an estimate cut a step differently. A trace sees a receive that takes long where the estimate has a pipeline bubble, and idle
time where it has the host's work. ``data/terms.toml`` says for every term of an estimate which measured parts its time can be in; what
can be in several is booked where more was measured than the other terms account for. Rows are measured parts, each with the terms
booked on it, and what nobody can name is the row "unexplained", which also holds what is left of rounding: the differences of the rows
sum to the difference of the steps.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING, Any

from ironlaw.errors import InputError, QuestionError
from ironlaw.measure.read.toml import shipped
from ironlaw.measure.versus.predicted import Predicted, read_estimate

if TYPE_CHECKING:
    from ironlaw.estimate.answer import Estimate

UNEXPLAINED = "unexplained"
ROUNDING = 1e-12  # of a term: less is left of sums of floats, and has no place of its own
NAMED = 0.005  # of the predicted step: what rounds to less than 1 % is not named in the sentence
MOST_NAMED = 5
NOT_FROM_A_LOG = "which terms make the difference is not identifiable from a log: give a trace"


@dataclass(frozen=True)
class Measured:
    """One measured step in exclusive seconds. ``parts`` sum to ``step_seconds``; without parts (a log) only the total is known."""

    step_seconds: float
    parts: Mapping[str, float]  # by the names of parts in data/terms.toml
    recompute_seconds: float | None = None  # of the parts, what is computed a second time
    mfu: float | None = None
    hfu: float | None = None
    causal: bool | None = None  # whether they count attention under a causal mask; None: not known
    device: str = ""  # a catalogue name, or what the file calls it
    world_size: int | None = None
    layers: float | None = None  # that this rank runs for one micro-batch
    microbatches: float | None = None  # of one step
    steps: int | None = None  # that were measured
    rank: int | None = None  # which of the job's ranks this is

    @property
    def compute_seconds(self) -> float:
        """Seconds in kernels that compute."""
        return sum(seconds for part, seconds in self.parts.items() if is_compute(part))

    def __post_init__(self) -> None:
        if not (math.isfinite(self.step_seconds) and self.step_seconds > 0):
            raise QuestionError(f"the measured step takes {self.step_seconds} s, must be more than 0: nothing to compare")
        for name, value in self.parts.items():
            if name not in known_parts():
                raise ValueError(f"{name!r} is no part of a measured step; known: {', '.join(known_parts())}")
            if not (math.isfinite(value) and value >= 0):
                raise ValueError(f"{name!r} takes {value} s")


@dataclass(frozen=True)
class Row:
    """One line of a comparison, in seconds of a step; ``share`` is the difference over the predicted step."""

    term: str
    measured: float
    predicted: float
    difference: float
    share: float
    measured_parts: Mapping[str, float] = field(default_factory=dict)
    predicted_terms: Mapping[str, float] = field(default_factory=dict)

    def data(self) -> dict[str, Any]:
        """The row as plain data."""
        return {
            "term": self.term,
            "measured_seconds": self.measured,
            "predicted_seconds": self.predicted,
            "difference_seconds": self.difference,
            "share": self.share,
            "measured_parts_seconds": dict(self.measured_parts),
            "predicted_terms_seconds": dict(self.predicted_terms),
        }


@dataclass(frozen=True)
class Comparison:
    """How a measured step differs from its prediction, and where."""

    measured: Measured
    predicted: Predicted
    rows: tuple[Row, ...]  # by the size of their difference; none for a log
    sentence: str
    warnings: tuple[str, ...]

    @property
    def difference(self) -> float:
        """Measured less predicted [s]."""
        return self.measured.step_seconds - self.predicted.seconds

    @property
    def inside(self) -> bool | None:
        """Whether the measured step lies in the estimate's band; None where it has none."""
        band = self.predicted.band
        return None if band is None else band[0] <= self.measured.step_seconds <= band[1]

    def data(self) -> dict[str, Any]:
        """Plain data: the rows under ``compare``, everything else under ``comparison``."""
        plan = self.predicted.plan
        return {
            "compare": [row.data() for row in self.rows],
            "comparison": {
                "sentence": self.sentence,
                "against": self.predicted.where,
                "measured_seconds": self.measured.step_seconds,
                "predicted_seconds": self.predicted.seconds,
                "difference_seconds": self.difference,
                "share": self.difference / self.predicted.seconds,
                "identifiable": bool(self.rows),
                "band": None if self.predicted.band is None else list(self.predicted.band),
                "inside_band": self.inside,
                "rank": self.measured.rank,
                "model": plan["model"],
                "accelerator": plan["accelerator"],
                "recompute": {"measured_seconds": self.measured.recompute_seconds, "predicted_seconds": self.predicted.recompute_seconds},
                "utilisation": compare_utilisation(self.measured, self.predicted),
                "warnings": list(self.warnings),
            },
        }


def compare(measured: Measured, estimate: Estimate | Predicted) -> Comparison:
    """The measured step against the estimate of the same run, term by term, ranked by how much of the difference each makes."""
    from ironlaw.measure.versus.same_run import find_mismatches

    predicted = estimate if isinstance(estimate, Predicted) else read_estimate(estimate)
    rows = _rows(measured, predicted) if measured.parts else ()
    mismatches = find_mismatches(measured, predicted, predicted_compute_seconds(predicted))
    return Comparison(measured, predicted, rows, describe(measured, predicted, rows), tuple(mismatches))


# the table of terms


@dataclass(frozen=True)
class Entry:
    """Where a trace sees the leaves whose name matches, under plans with one of these values."""

    name: re.Pattern[str]
    parts: tuple[str, ...]
    shares: tuple[float, ...]
    zero: tuple[int, ...]
    sp: bool | None

    def fits(self, name: str, plan: Mapping[str, Any]) -> bool:
        """Whether a leaf of this name, in an estimate of this plan, is meant."""
        if (self.zero and plan["zero"] not in self.zero) or (self.sp is not None and plan["sp"] is not self.sp):
            return False
        return self.name.fullmatch(name) is not None


@cache
def term_table() -> tuple[dict[str, tuple[str, bool]], tuple[Entry, ...]]:
    """Rows by part, as (name, whether nobody knows what it is), and the entries of terms."""
    found = shipped("terms.toml")
    rows = {row["part"]: (name, row.get("nobody", False)) for name, row in found["row"].items()}
    entries = []
    for term in found["term"]:
        where = tuple(term["parts"])
        shares = tuple(term.get("shares", [1.0] + [0.0] * (len(where) - 1)))
        entries.append(Entry(re.compile(term["name"]), where, shares, tuple(term.get("zero", ())), term.get("sp")))
    return rows, tuple(entries)


def known_parts() -> tuple[str, ...]:
    """The parts a measured step may have."""
    return tuple(term_table()[0])


def is_compute(part: str) -> bool:
    """Whether this part of a measured step is time in kernels that compute."""
    return not part.startswith(("exposed ", "idle: "))


def predicted_compute_seconds(predicted: Predicted) -> float:
    """Seconds of the estimate's step in kernels that compute."""
    return math.fsum(s for name, s in predicted.leaves.items() if s and is_compute(_find_entry(name, predicted).parts[0]))


def find_entries(name: str, plan: Mapping[str, Any]) -> list[Entry]:
    """The entries that a leaf of this name fits under this plan: one, unless the table is wrong or the leaf unknown."""
    return [entry for entry in term_table()[1] if entry.fits(name, plan)]


def _find_entry(name: str, predicted: Predicted) -> Entry:
    found = find_entries(name, predicted.plan)
    if not found:
        raise InputError(f"{predicted.where}: the step has a term {name!r}, which no trace is known to show; estimate it with this version")
    return found[0]


# booking


Booked = dict[str, dict[str, float]]  # measured part -> predicted term -> seconds


def book(terms: Sequence[tuple[str, float, Entry]], measured: Mapping[str, float]) -> Booked:
    """Predicted seconds by measured part and term.

    Terms with one place are booked there. Those with several are booked first by their shares as far as there is room (more was measured
    than is booked), all of them; then their rest wherever room is left; and what has no room anywhere by their shares again.
    """
    booked: Booked = {part: {} for part in known_parts()}

    def put(name: str, entry: Entry, amounts: Sequence[float]) -> float:
        for part, amount in zip(entry.parts, amounts, strict=True):
            if amount:
                booked[part][name] = booked[part].get(name, 0.0) + amount
        return sum(amounts)

    def room(entry: Entry) -> list[float]:
        return [max(measured.get(part, 0.0) - sum(booked[part].values()), 0.0) for part in entry.parts]

    for name, seconds, entry in terms:
        if len(entry.parts) == 1:
            put(name, entry, [seconds])
    several = [term for term in terms if len(term[2].parts) > 1]
    left = [seconds - put(name, entry, by_shares(seconds, entry.shares, room(entry))) for name, seconds, entry in several]
    for (name, seconds, entry), rest in zip(several, left, strict=True):
        if abs(rest) <= ROUNDING * seconds:
            continue
        homeless = rest - put(name, entry, in_proportion(rest, room(entry)))
        put(name, entry, [share * homeless for share in entry.shares])
    return booked


def by_shares(seconds: float, shares: Sequence[float], room: Sequence[float]) -> list[float]:
    """``seconds`` by their shares, each as far as there is room.

    >>> by_shares(4.0, [0.5, 0.5], [9.0, 1.0])
    [2.0, 1.0]
    """
    return [min(share * seconds, free) for share, free in zip(shares, room, strict=True)]


def in_proportion(seconds: float, room: Sequence[float]) -> list[float]:
    """``seconds`` over all the room there is, in proportion to it.

    >>> in_proportion(2.0, [3.0, 1.0]), in_proportion(8.0, [3.0, 1.0])
    ([1.5, 0.5], [3.0, 1.0])
    """
    whole = sum(room)
    filled = min(max(seconds, 0.0) / whole, 1.0) if whole > 0.0 else 0.0
    return [free * filled for free in room]


def _rows(measured: Measured, predicted: Predicted) -> tuple[Row, ...]:
    """Every part that was measured or predicted, the largest difference first, and what nobody can name."""
    terms = [(name, s, _find_entry(name, predicted)) for name, s in predicted.leaves.items() if s]
    booked = book(terms, measured.parts)
    expected = {entry.parts[0] for _, _, entry in terms}
    named: list[Row] = []
    unnamed_parts: dict[str, float] = {}
    unnamed_terms: dict[str, float] = {}
    for part, (row, nobody) in term_table()[0].items():
        seen = measured.parts.get(part, 0.0)
        if nobody and part not in expected:  # nothing is predicted there first of all: a kernel or a gap that has no name
            unnamed_parts |= {part: seen} if seen else {}
            for name, seconds in booked[part].items():
                unnamed_terms[name] = unnamed_terms.get(name, 0.0) + seconds
        elif seen or booked[part]:
            named.append(_row(row, seen, math.fsum(booked[part].values()), predicted.seconds, {part: seen}, booked[part]))
    rest = predicted.seconds - math.fsum(row.predicted for row in named)
    seen = measured.step_seconds - math.fsum(row.measured for row in named)
    whole = measured.step_seconds - predicted.seconds
    open_ = whole - math.fsum(row.difference for row in named)
    named.append(Row(UNEXPLAINED, seen, rest, open_, open_ / predicted.seconds, unnamed_parts, unnamed_terms))
    return tuple(sorted(named, key=lambda row: -abs(row.difference)))


def _row(name: str, seen: float, said: float, step: float, measured: dict[str, float], terms: dict[str, float]) -> Row:
    return Row(name, seen, said, seen - said, (seen - said) / step, measured, terms)


# words


def describe(measured: Measured, predicted: Predicted, rows: Sequence[Row]) -> str:
    """The comparison in one line: how much slower or faster, and which terms make it."""
    share = measured.step_seconds / predicted.seconds - 1.0
    head = "as long as predicted" if _percent(share) == "0 %" else f"{_percent(share)} {'slower' if share > 0 else 'faster'} than predicted"
    if not rows:
        return f"{head}; {NOT_FROM_A_LOG}"
    towards = -1.0 if share < 0 and not head.startswith("as") else 1.0
    known = [row for row in rows if row.term != UNEXPLAINED]
    told = [row for row in known if abs(row.share) >= NAMED][:MOST_NAMED]
    small = [row for row in known if row not in told]
    items = [(row.term, towards * row.share) for row in told]
    items.append((f"{len(small)} smaller terms" if len(small) != 1 else small[0].term, towards * math.fsum(row.share for row in small)))
    items += [(UNEXPLAINED, towards * row.share) for row in rows if row.term == UNEXPLAINED]
    words = [("" if amount > 0 else "less ") + f"{_percent(amount)} {name}" for name, amount in items if _percent(amount) != "0 %"]
    return f"{head}: {', '.join(words)}" if words else head


def _percent(share: float) -> str:
    """The size of a share to a tenth of a percent, without a zero behind the point.

    >>> _percent(0.07), _percent(-0.0321), _percent(12.5)
    ('7 %', '3.2 %', '1250 %')
    """
    return f"{abs(share) * 100.0:.1f}".removesuffix(".0") + " %"


def compare_utilisation(measured: Measured, predicted: Predicted) -> dict[str, Any]:
    """MFU and HFU of both, with what they count and what they divide by.

    A trace gives one MFU: its attention is causal or it is not, so it stands beside the estimate's that counts alike. Where the trace
    gives none, the measured one is the estimate's FLOPs over the measured step: right if it is the same run, so there is none where the
    device or the number of accelerators is another.
    """
    from ironlaw.measure.versus.same_run import matching_mfu, same_work

    comparable = same_work(measured, predicted)
    slower = predicted.seconds / measured.step_seconds
    given: dict[str, float | None] = {"mfu": None, "mfu_causal": None, "hfu": measured.hfu}
    given[matching_mfu(measured, predicted)] = measured.mfu
    found: dict[str, Any] = {}
    for name, value in given.items():
        said = predicted.rates.get(name)
        same = said * slower if comparable and said is not None else None
        traced = "the trace" if predicted.stage in (None, "only") else "the trace, of one stage of the pipeline"
        by = traced if value is not None else None if same is None else "the estimate's FLOPs over the measured step"
        found[name] = {"measured": same if value is None else value, "predicted": said, "measured_by": by, "from_same_flop": same}
    peak = predicted.peak
    return found | {
        "numerator": "model FLOPs of forward and backward: mfu with attention as the full square, mfu_causal without what a causal mask "
        "leaves out; hfu adds what is computed a second time, in a trace with attention as it ran and with the scores that the backward "
        "pass of flash attention computes again",
        "model_flop_per_step_and_accelerator": predicted.model_flop,
        "denominator": f"dense {peak['precision']} peak of {predicted.plan['accelerator']}",
        "peak_flop_per_second": peak["flop_per_second"],
        "dtype": peak["precision"],
    }
