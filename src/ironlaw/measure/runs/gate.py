"""A run against a baseline: slower, faster, neither, or not to be told.

A run fails when the median of its steps is later than the baseline's by more than the noise allows and a rank test says that this is
not chance. The same is asked of the parts of a step, as shares of the baseline's step, since a slower kernel that a faster exchange
hides is a regression too. The noise is learned from the machine's own runs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import median

from ironlaw.measure.noise import NORMAL_MAD
from ironlaw.measure.runs.ranktest import mann_whitney
from ironlaw.measure.runs.recorded import TERMS, WALL, medians

LEAST_SAMPLES = 5
LEAST_SHIFT = 0.03  # a shift below it fails no run, however steady the machine
NOISE_TIMES = 3.0
LEARNED_FROM = 4  # runs: the fewest whose successive shifts have a median that one real change does not move
# The most chance one test may take: five tests then fail an unchanged run once in fifty, and samples of five that do not overlap
# (one of 252 orders) still pass it.
CHANCE = 0.004

PASSED, FASTER, SLOWER, INCONCLUSIVE = "passed", "faster", "slower", "inconclusive"
EXIT = {PASSED: 0, FASTER: 0, SLOWER: 1, INCONCLUSIVE: 4}


@dataclass(frozen=True)
class Check:
    """One quantity against the baseline."""

    quantity: str
    baseline_ns: float  # medians
    candidate_ns: float
    shift: float  # of the medians, over the median of the baseline's step
    threshold: float
    noise: float | None  # None where too few runs were there to learn it
    learned_from: int  # runs the noise was learned from, or that were there
    samples: tuple[int, int]
    p_slower: float
    p_faster: float
    verdict: str


@dataclass(frozen=True)
class Gate:
    """The verdict with everything it was decided by."""

    verdict: str
    reasons: tuple[str, ...]
    checks: tuple[Check, ...]
    warnings: tuple[str, ...] = ()

    @property
    def exit_status(self) -> int:
        """0 passed or faster, 1 slower, 4 inconclusive."""
        return EXIT[self.verdict]


def learned_noise(history: Sequence[Mapping[str, float]], quantity: str) -> tuple[float | None, int]:
    """The usual shift of ``quantity`` from one run to the next, over a step, and the number of runs it was learned from.

    It is the median of absolute shifts between successive runs (a MAD about no change), scaled to a standard deviation. Successive
    runs, so that a lasting change counts once and an old regression does not widen the gate for ever.
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
    """``candidate`` against ``baseline``: quantity to one value a step [ns]. ``history`` holds medians of other runs, oldest first.

    ``doubts`` are reasons not to compare the two at all; with any of them the answer is inconclusive, and the checks are shown.
    """
    step = medians(baseline).get(WALL, 0.0)
    few = [
        f"{whose} has {len(samples.get(WALL, ()))} step samples, and {LEAST_SAMPLES} are needed: keep a run of more steps"
        for whose, samples in (("the baseline", baseline), ("the run", candidate))
        if len(samples.get(WALL, ())) < LEAST_SAMPLES
    ]
    if few or step <= 0:
        reasons = [*doubts, *few] or ["the baseline's step takes no time"]
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
    noise, runs = learned_noise(history, name)
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
    """The step decides; unless it got faster, a part that got slower fails it too."""
    step, parts = checks[0], [c for c in checks[1:] if c.verdict == SLOWER]
    if step.verdict == SLOWER:
        return SLOWER, [f"the step is {step.shift:.1%} slower, more than {step.threshold:.1%}, and not by chance (p {step.p_slower:.1g})"]
    hidden = [f"{c.quantity} takes {c.shift:.1%} of a step more, more than {c.threshold:.1%}" for c in parts]
    if step.verdict == FASTER:
        told = [f"the step is {-step.shift:.1%} faster, more than {step.threshold:.1%}"]
        return FASTER, told + [f"although {line}" for line in hidden]
    if hidden:
        return SLOWER, [f"{line}, and the step hides it" for line in hidden]
    if step.verdict == INCONCLUSIVE:
        return INCONCLUSIVE, [f"the step is {step.shift:.1%} slower, which may be chance (p {step.p_slower:.1g}): keep runs of more steps"]
    return PASSED, [f"the step's median moved by {step.shift:+.1%}; the gate is at {step.threshold:.1%}"]


def _warnings(checks: Sequence[Check]) -> list[str]:
    """What a reader must know of the noise and of the parts."""
    step, found = checks[0], []
    if step.noise is None:
        found.append(
            f"noise not learned: {step.learned_from} other runs of this fingerprint are kept, {LEARNED_FROM} are needed;"
            f" the gate is at {LEAST_SHIFT:.0%}"
        )
    if len(checks) == 1:
        found.append("only the step's time is checked: its parts are not in both runs")
    return found
