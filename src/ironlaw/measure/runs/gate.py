"""Decide whether a run is slower than a baseline, faster, neither, or whether that is inconclusive.

A run fails when its median step is slower than the baseline's by more than the noise and a rank test says that this is not chance. The
parts of a step are checked likewise, as shares of the baseline's step, because a slower kernel is a regression even where faster
communication hides it. The noise is learned from earlier runs on the same machine.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import median

from ironlaw.cautions.record import Caution
from ironlaw.cautions.table import caution
from ironlaw.measure.noise import NORMAL_MAD
from ironlaw.measure.runs.ranktest import mann_whitney
from ironlaw.measure.runs.saved_diagnosis import TERMS, WALL, medians

LEAST_SAMPLES = 5
LEAST_SHIFT = 0.03  # a smaller shift never fails a run, however steady the machine is
NOISE_TIMES = 3.0
LEARNED_FROM = 4  # runs: with fewer, one real change moves the median of the shifts from run to run
# The largest p that counts as no chance: five tests then fail an unchanged run once in fifty, and two samples of five that do not
# overlap (one of 252 orders) are still significant.
CHANCE = 0.004

PASSED, FASTER, SLOWER, INCONCLUSIVE = "passed", "faster", "slower", "inconclusive"
EXIT = {PASSED: 0, FASTER: 0, SLOWER: 1, INCONCLUSIVE: 4}


@dataclass(frozen=True)
class Check:
    """One quantity compared with the baseline."""

    quantity: str
    baseline_ns: float  # medians
    candidate_ns: float
    shift: float  # of the medians, over the median of the baseline's step
    threshold: float
    noise: float | None  # None where too few runs are stored
    learned_from: int  # number of runs the noise was learned from, or found in the store
    samples: tuple[int, int]
    p_slower: float
    p_faster: float
    verdict: str


@dataclass(frozen=True)
class Gate:
    """The verdict with its reasons and checks."""

    verdict: str
    reasons: tuple[str, ...]
    checks: tuple[Check, ...]
    warnings: tuple[Caution, ...] = ()

    @property
    def exit_status(self) -> int:
        """0: passed or faster; 1: slower; 4: inconclusive."""
        return EXIT[self.verdict]


def learn_noise(history: Sequence[Mapping[str, float]], quantity: str) -> tuple[float | None, int]:
    """The usual shift of ``quantity`` from one run to the next, as a share of a step, and the number of runs it comes from.

    It is the median absolute shift between successive runs, scaled to a standard deviation. Successive runs are compared so that a
    lasting change counts once: an old regression does not widen the gate for ever.
    """
    runs = [r for r in history if quantity in r and r.get(WALL, 0) > 0]
    if len(runs) < LEARNED_FROM:
        return None, len(runs)
    shifts = [abs(b[quantity] - a[quantity]) / a[WALL] for a, b in pairwise(runs)]
    return NORMAL_MAD * median(shifts), len(runs)


def gate(
    baseline: Mapping[str, Sequence[float]],
    candidate: Mapping[str, Sequence[float]],
    history: Sequence[Mapping[str, float]] = (),
    doubts: Sequence[str] = (),
) -> Gate:
    """Compare ``candidate`` with ``baseline``; both map a quantity to one value for each step [ns].

    ``history`` has the medians of other runs, oldest first. ``doubts`` are reasons not to compare the two: with any of them the answer is
    inconclusive, and the checks are still shown.
    """
    step = medians(baseline).get(WALL, 0.0)
    few = [
        f"{whose} has {len(samples.get(WALL, ()))} steps, and {LEAST_SAMPLES} are needed: measure more steps"
        for whose, samples in (("the baseline", baseline), ("the run", candidate))
        if len(samples.get(WALL, ())) < LEAST_SAMPLES
    ]
    if few or step <= 0:
        reasons = [*doubts, *few] or ["the step of the baseline takes no time"]
        return Gate(INCONCLUSIVE, tuple(reasons), ())
    checks = tuple(
        _check(name, baseline[name], candidate[name], step, history)
        for name in (WALL, *TERMS)
        if min(len(baseline.get(name, ())), len(candidate.get(name, ()))) >= LEAST_SAMPLES
    )
    verdict, reasons = _verdict(checks)
    if doubts:
        verdict, reasons = INCONCLUSIVE, [*doubts]
    return Gate(verdict, tuple(reasons), checks, tuple(_warnings(checks)))


def _check(name: str, before: Sequence[float], after: Sequence[float], step: float, history: Sequence[Mapping[str, float]]) -> Check:
    """Compare one quantity of the run with the baseline: shift, limit and rank test."""
    noise, runs = learn_noise(history, name)
    threshold = max(LEAST_SHIFT, NOISE_TIMES * (noise or 0.0))
    a, b = median(before), median(after)
    shift = (b - a) / step
    test = mann_whitney(before, after)
    verdict = PASSED
    if shift > threshold:
        verdict = SLOWER if test.p_larger <= CHANCE else INCONCLUSIVE
    elif shift < -threshold and test.p_smaller <= CHANCE:
        verdict = FASTER
    return Check(name, a, b, shift, threshold, noise, runs, (len(before), len(after)), test.p_larger, test.p_smaller, verdict)


def _verdict(checks: Sequence[Check]) -> tuple[str, list[str]]:
    """The step time decides; a slower part fails the run too, unless the step got faster."""
    step, parts = checks[0], [c for c in checks[1:] if c.verdict == SLOWER]
    if step.verdict == SLOWER:
        return SLOWER, [
            f"the step is {step.shift:.1%} slower, more than the limit of {step.threshold:.1%}, and not by chance (p {step.p_slower:.1g})"
        ]
    hidden = [f"{c.quantity} takes {c.shift:.1%} of a step more than before, above the limit of {c.threshold:.1%}" for c in parts]
    if step.verdict == FASTER:
        faster = [f"the step is {-step.shift:.1%} faster, more than the limit of {step.threshold:.1%}"]
        return FASTER, faster + [f"although {line}" for line in hidden]
    if hidden:
        return SLOWER, [f"{line}; other parts hide it in the step time" for line in hidden]
    if step.verdict == INCONCLUSIVE:
        return INCONCLUSIVE, [f"the step is {step.shift:.1%} slower, which may be chance (p {step.p_slower:.1g}): measure more steps"]
    return PASSED, [f"the median step moved by {step.shift:+.1%}; the limit is {step.threshold:.1%}"]


def _warnings(checks: Sequence[Check]) -> list[Caution]:
    """Warn where the noise is not known, and where the parts of a step are not compared."""
    step, warnings = checks[0], []
    if step.noise is None:
        warnings.append(caution("noise-unknown", learned_from=step.learned_from, needed=LEARNED_FROM, limit=LEAST_SHIFT))
    if len(checks) == 1:
        warnings.append(caution("only-step-time"))
    return warnings
