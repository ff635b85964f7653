"""Compare a measured step with the estimate of the same run, term by term, the largest difference first.

A trace and an estimate divide a step differently: where the estimate has a pipeline bubble, the trace has a long receive; where it has host
work, the trace has idle time. ``data/terms.toml`` lists for every term of an estimate the measured parts that may contain its time. A term
with several parts is booked where more was measured than the other terms explain. The rows are measured parts with the terms booked on
them. The row "unexplained" has the time that no term or part names, and the rounding, so the differences of the rows sum to the difference
of the steps.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING, Any

from ironlaw import units
from ironlaw.cautions.record import Caution, as_record
from ironlaw.errors import InputError, QuestionError
from ironlaw.measure.read.toml import shipped
from ironlaw.measure.versus.predicted import RATES, Predicted, read_estimate

if TYPE_CHECKING:
    from ironlaw.estimate.answer.estimate import Estimate
    from ironlaw.estimate.what_if.measured_run import MeasuredRun

UNEXPLAINED = "unexplained"
ROUNDING = 1e-12  # of a term: a smaller rest is rounding and is not booked
NAMED = 0.005  # of the predicted step: smaller differences are not named in the sentence
MOST_NAMED = 5
NOT_FROM_A_LOG = "a log cannot show which terms differ: give a trace"  # of torch.profiler or Nsight Systems


@dataclass(frozen=True)
class Measured:
    """One measured step. ``parts`` are exclusive and sum to ``step_seconds``; a log has the total only."""

    step_seconds: float
    parts: Mapping[str, float]  # names as in data/terms.toml
    recompute_seconds: float | None = None  # time of recomputation, within the parts
    mfu: float | None = None
    hfu: float | None = None
    causal: bool | None = None  # whether MFU and HFU count attention under a causal mask; None: unknown
    device: str = ""  # a catalogue name, or the name in the file
    world_size: int | None = None
    layers: float | None = None  # on this rank, for one micro-batch
    microbatches: float | None = None  # of one step
    steps: int | None = None  # measured steps
    rank: int | None = None  # number of this rank in the job

    @property
    def compute_seconds(self) -> float:
        """Seconds in compute kernels."""
        return sum(seconds for part, seconds in self.parts.items() if is_compute(part))

    def __post_init__(self) -> None:
        if not (math.isfinite(self.step_seconds) and self.step_seconds > 0):
            raise QuestionError(f"the measured step takes {self.step_seconds} s, must be more than 0")
        for name, value in self.parts.items():
            if name not in known_parts():
                raise ValueError(f"{name!r} is not a part of a measured step; known: {', '.join(known_parts())}")
            if not (math.isfinite(value) and value >= 0):
                raise ValueError(f"part {name!r} of the measured step takes {value} s, must be a finite time of at least 0 s")


@dataclass(frozen=True)
class Row:
    """One line of a comparison, in seconds per step; ``share`` is the difference over the predicted step."""

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
    """The difference between a measured step and its prediction, by term."""

    measured: Measured
    predicted: Predicted
    rows: tuple[Row, ...]  # the largest difference first; none for a log
    sentence: str
    warnings: tuple[Caution, ...]
    run: MeasuredRun | None = None  # of a log or a throughput: its MFUs, and what could explain the difference
    next_command: str = ""  # that shows more

    @property
    def difference(self) -> float:
        """Measured less predicted [s]."""
        return self.measured.step_seconds - self.predicted.seconds

    @property
    def inside(self) -> bool | None:
        """Whether the measured step is inside the error band of the estimate; None without a band."""
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
                "warnings": [as_record(one) for one in self.warnings],
                "measured_run": None if self.run is None else self.run.data(),
                "next_command": self.next_command,
            },
        }


def compare(measured: Measured, estimate: Estimate | Predicted) -> Comparison:
    """Compare a measured step with the estimate of the same run, term by term."""
    from ironlaw.measure.versus.same_run import find_mismatches

    predicted = estimate if isinstance(estimate, Predicted) else read_estimate(estimate)
    rows = _rows(measured, predicted) if measured.parts else ()
    mismatches = find_mismatches(measured, predicted, predicted_compute_seconds(predicted))
    return Comparison(measured, predicted, rows, describe(measured, predicted, rows), tuple(mismatches))


# the table of terms


@dataclass(frozen=True)
class Entry:
    """An entry of ``data/terms.toml``: the measured parts that contain the time of leaves of this name, and the plans it applies to."""

    name: re.Pattern[str]
    parts: tuple[str, ...]
    shares: tuple[float, ...]
    zero: tuple[int, ...]
    sp: bool | None

    def fits(self, name: str, plan: Mapping[str, Any]) -> bool:
        """Whether the entry applies to a leaf of this name under this plan."""
        if (self.zero and plan["zero"] not in self.zero) or (self.sp is not None and plan["sp"] is not self.sp):
            return False
        return self.name.fullmatch(name) is not None


@cache
def term_table() -> tuple[dict[str, tuple[str, bool]], tuple[Entry, ...]]:
    """The rows by part, as (name, whether its time is unexplained), and the entries of terms."""
    table = shipped("terms.toml")
    rows = {row["part"]: (name, row.get("unexplained", False)) for name, row in table["row"].items()}
    entries = []
    for term in table["term"]:
        where = tuple(term["parts"])
        shares = tuple(term.get("shares", [1.0] + [0.0] * (len(where) - 1)))
        entries.append(Entry(re.compile(term["name"]), where, shares, tuple(term.get("zero", ())), term.get("sp")))
    return rows, tuple(entries)


def known_parts() -> tuple[str, ...]:
    """The possible parts of a measured step."""
    return tuple(term_table()[0])


def is_compute(part: str) -> bool:
    """Whether a part is time in compute kernels."""
    return not part.startswith(("exposed ", "idle: "))


def predicted_compute_seconds(predicted: Predicted) -> float:
    """Seconds of the predicted step in compute kernels."""
    return math.fsum(s for name, s in predicted.leaves.items() if s and is_compute(_find_entry(name, predicted).parts[0]))


def find_entries(name: str, plan: Mapping[str, Any]) -> list[Entry]:
    """Find the entries for a leaf under this plan: one, unless the table is wrong or the leaf unknown."""
    return [entry for entry in term_table()[1] if entry.fits(name, plan)]


def _find_entry(name: str, predicted: Predicted) -> Entry:
    """The entry of the term table for a leaf; InputError where it has none."""
    entries = find_entries(name, predicted.plan)
    if not entries:
        raise InputError(f"{predicted.where}: unknown term {name!r} in the step; run ironlaw estimate again with this version")
    return entries[0]


# booking


Booked = dict[str, dict[str, float]]  # measured part -> predicted term -> seconds


def book(terms: Sequence[tuple[str, float, Entry]], measured: Mapping[str, float]) -> Booked:
    """Book predicted seconds on measured parts: a map of part to term to seconds.

    A term with one part is booked there. A term with several parts is booked by its shares as far as there is room, which is measured less
    booked time. Then the rest of all such terms is booked wherever room is left, and what finds no room by the shares again.
    """
    booked: Booked = {part: {} for part in known_parts()}

    def put(name: str, entry: Entry, amounts: Sequence[float]) -> float:
        """Add amounts of one leaf to the parts of its entry, and return their sum."""
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
    remainders = [seconds - put(name, entry, by_shares(seconds, entry.shares, room(entry))) for name, seconds, entry in several]
    for (name, seconds, entry), remainder in zip(several, remainders, strict=True):
        if abs(remainder) <= ROUNDING * seconds:
            continue
        unplaced = remainder - put(name, entry, in_proportion(remainder, room(entry)))
        put(name, entry, [share * unplaced for share in entry.shares])
    return booked


def by_shares(seconds: float, shares: Sequence[float], room: Sequence[float]) -> list[float]:
    """Split ``seconds`` by shares, each limited to its room.

    >>> by_shares(4.0, [0.5, 0.5], [9.0, 1.0])
    [2.0, 1.0]
    """
    return [min(share * seconds, free) for share, free in zip(shares, room, strict=True)]


def in_proportion(seconds: float, room: Sequence[float]) -> list[float]:
    """Split ``seconds`` in proportion to the room, limited to the room.

    >>> in_proportion(2.0, [3.0, 1.0]), in_proportion(8.0, [3.0, 1.0])
    ([1.5, 0.5], [3.0, 1.0])
    """
    total = sum(room)
    filled = min(max(seconds, 0.0) / total, 1.0) if total > 0.0 else 0.0
    return [free * filled for free in room]


def _rows(measured: Measured, predicted: Predicted) -> tuple[Row, ...]:
    """One row for every part that was measured or predicted, and the unexplained row; the largest difference first."""
    terms = [(name, s, _find_entry(name, predicted)) for name, s in predicted.leaves.items() if s]
    booked = book(terms, measured.parts)
    expected = {entry.parts[0] for _, _, entry in terms}
    rows: list[Row] = []
    unnamed_parts: dict[str, float] = {}
    unnamed_terms: dict[str, float] = {}
    step = predicted.seconds
    for part, (name, no_cause) in term_table()[0].items():
        seconds, of_terms = measured.parts.get(part, 0.0), booked[part]
        if no_cause and part not in expected:  # no term has its main part here: kernels or gaps without a name
            unnamed_parts |= {part: seconds} if seconds else {}
            for term, value in of_terms.items():
                unnamed_terms[term] = unnamed_terms.get(term, 0.0) + value
        elif seconds or of_terms:
            total = math.fsum(of_terms.values())
            rows.append(Row(name, seconds, total, seconds - total, (seconds - total) / step, {part: seconds}, of_terms))
    remainder = step - math.fsum(row.predicted for row in rows)
    seconds = measured.step_seconds - math.fsum(row.measured for row in rows)
    unexplained = measured.step_seconds - step - math.fsum(row.difference for row in rows)
    rows.append(Row(UNEXPLAINED, seconds, remainder, unexplained, unexplained / step, unnamed_parts, unnamed_terms))
    return tuple(sorted(rows, key=lambda row: -abs(row.difference)))


# words


def describe(measured: Measured, predicted: Predicted, rows: Sequence[Row]) -> str:
    """The comparison in one line: measured and predicted step, and the terms that differ."""
    share = measured.step_seconds / predicted.seconds - 1.0
    head = "as long as predicted" if _percent(share) == "0 %" else f"{_percent(share)} {'slower' if share > 0 else 'faster'} than predicted"
    if share >= 1.0:
        head += f", {1.0 + share:.2g} times as long"
    if not rows:
        steps = f"measured {units.show(measured.step_seconds, 's', 4)}, predicted {units.show(predicted.seconds, 's', 4)} a step"
        return f"{steps}: {head}; {NOT_FROM_A_LOG}"
    towards = -1.0 if share < 0 and not head.startswith("as") else 1.0
    explained = [row for row in rows if row.term != UNEXPLAINED]
    largest = [row for row in explained if abs(row.share) >= NAMED][:MOST_NAMED]
    small = [row for row in explained if row not in largest]
    items = [(row.term, towards * row.share) for row in largest]
    items.append((f"{len(small)} smaller terms" if len(small) != 1 else small[0].term, towards * math.fsum(row.share for row in small)))
    items += [(UNEXPLAINED, towards * row.share) for row in rows if row.term == UNEXPLAINED]
    words = [("" if amount > 0 else "less ") + f"{_percent(amount)} {name}" for name, amount in items if _percent(amount) != "0 %"]
    return f"{head}: {', '.join(words)}" if words else head


def _percent(share: float) -> str:
    """The size of a share in percent with one digit after the point, unless it is zero.

    >>> _percent(0.07), _percent(-0.0321), _percent(12.5)
    ('7 %', '3.2 %', '1250 %')
    """
    return f"{abs(share) * 100.0:.1f}".removesuffix(".0") + " %"


def compare_utilisation(measured: Measured, predicted: Predicted) -> dict[str, Any]:
    """MFU and HFU, measured and predicted, with their definition.

    A trace gives one MFU, with causal attention or without; it is compared with the predicted MFU that counts attention the same way.
    Without a measured MFU, the FLOPs of the estimate are divided by the measured step. That is right only for the same run, so it is left
    out if the device or the number of accelerators differs.
    """
    from ironlaw.measure.versus.same_run import matching_mfu, same_work

    comparable = same_work(measured, predicted)
    slower = predicted.seconds / measured.step_seconds
    measured_rates: dict[str, float | None] = dict.fromkeys(RATES)
    measured_rates |= {"hfu": measured.hfu, matching_mfu(measured, predicted): measured.mfu}
    rows: dict[str, Any] = {}
    for name, value in measured_rates.items():
        expected = predicted.rates.get(name)
        slowed = expected * slower if comparable and expected is not None else None
        traced = "the trace" if predicted.stage in (None, "only") else "the trace, for one pipeline stage"
        basis = traced if value is not None else None if slowed is None else "FLOPs of the estimate over the measured step"
        rows[name] = {"measured": slowed if value is None else value, "predicted": expected, "measured_by": basis, "from_same_flop": slowed}
    peak = predicted.peak
    return rows | {
        "numerator": "model FLOPs of forward and backward pass: mfu counts attention as the model computes it, under its masks, "
        "mfu_full_square all pairs of tokens; hfu adds recomputation, and in a trace counts attention as it ran, with the scores "
        "that flash attention computes again in the backward pass",
        "model_flop_per_step_and_accelerator": predicted.model_flop,
        "denominator": f"dense {peak['precision']} peak of {predicted.plan['accelerator']}",
        "peak_flop_per_second": peak["flop_per_second"],
        "dtype": peak["precision"],
    }
