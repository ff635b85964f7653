"""Remarks on a log, one function each, and the bottlenecks that a log rules out."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

from ironlaw.catalog.records import Accelerator
from ironlaw.measure.logs import Log
from ironlaw.measure.logs.job import LoggedJob
from ironlaw.measure.logs.rates import AGREE, Rates
from ironlaw.measure.logs.steps import SLOW_START, Steps
from ironlaw.measure.logs.whole_run import Change, WholeRun
from ironlaw.measure.noise import NORMAL_MAD, NORMAL_MEDIAN
from ironlaw.measure.roof import DATA, DISPATCH, NETWORK, PIPELINE
from ironlaw.precision import PRECISIONS

MAJORITY = 0.5  # of a step: what takes more is its larger part
QUIET = 0.02  # of a step: logs print about a percent, and a smaller share changes no decision
SURE = 3.0  # standard errors: chance causes such a drift once in some hundred logs
SPREAD_OVER = 10  # lines: the 95th percentile of fewer is their maximum
WAITED = 0.1  # of a step: the timer of the loader also runs while the device works, so a small share means nothing

ADVICE = {  # by where time went
    "between the steps": "save checkpoints asynchronously, evaluate less often, restart faster (ironlaw goodput)",
    "in iterations that were made again": "save checkpoints more often (ironlaw goodput finds the best interval)",
    "in iterations that were skipped": "bf16 needs no loss scaling; look at the data and the gradient norm of these iterations",
    "in iterations slower than usual": "see what these iterations share: a checkpoint, an evaluation, a late rank, garbage collection",
}


@dataclass(frozen=True)
class Excluded:
    """A bottleneck that the log rules out as the larger part of the step."""

    roof: str
    why: str


@dataclass(frozen=True)
class Remark:
    """A problem or a fact worth knowing, with its numbers; ``findings`` maps ``code`` to the name of the finding."""

    code: str
    text: str
    advice: str
    evidence: dict[str, float | str]


def excluded_roofs(steps: Steps | None, rates: Rates | None, share: float | None) -> list[Excluded]:
    """Bottlenecks that cannot be the larger part of the step."""
    excluded = []
    if share is not None and share < QUIET:
        excluded.append(Excluded(DATA, f"waiting for the loader takes {share:.2%} of a step"))
    if rates is not None and rates.hfu is not None and rates.hfu <= 1.0:
        remainder = 1.0 - rates.hfu
        if rates.hfu > MAJORITY:
            for roof in (NETWORK, PIPELINE, DISPATCH, DATA):
                if all(e.roof != roof for e in excluded):
                    excluded.append(
                        Excluded(roof, f"takes at most {remainder:.1%} of the step: matrix products need {rates.hfu:.1%} of it at peak")
                    )
        else:
            excluded.append(
                Excluded("compute at peak", f"matrix products need {rates.hfu:.1%} of the step at peak; {remainder:.1%} is something else")
            )
    if steps is not None and steps.lines >= SPREAD_OVER and steps.p95 / steps.median - 1.0 < QUIET:
        above = steps.p95 / steps.median - 1.0
        excluded.append(Excluded("occasional stalls", f"95 % of the lines are at most {above:.2%} above the median"))
    return excluded


def _check_mfu(rates: Rates | None) -> Remark | None:
    """Remark where the computed MFU or HFU is above 1."""
    if rates is None or rates.hfu is None or rates.mfu is None or max(rates.mfu, rates.hfu) <= 1.0:
        return None
    return Remark(
        "mfu-above-100",
        f"MFU {rates.mfu:.0%}, HFU {rates.hfu:.0%} of {rates.device} in {rates.dtype}, which is impossible",
        "the FLOP count, the peak (dense or sparse) or the device is wrong: check model, batch, number of GPUs and device",
        {"mfu": rates.mfu, "hfu": rates.hfu, "peak": rates.peak or 0.0, "tokens_per_second": rates.tokens_per_second},
    )


def _check_claimed_mfu(log: Log) -> Remark | None:
    """Remark where the printed MFU is above 1."""
    claimed = log.claims.get("mfu", 0.0)
    if claimed <= 1.0:
        return None
    return Remark(
        "claimed-mfu-above-100",
        f"the log prints an MFU of {claimed:.0%}",
        "the tool divides by the peak of another device, or counts FLOPs that the attention mask skips",
        {"mfu": claimed},
    )


def _check_peak(log: Log, job: LoggedJob, device: Accelerator | None) -> Remark | None:
    """Compare the peak that a log divides by with the dense peak in the catalogue."""
    claimed = log.claims.get("peak")
    if not claimed or device is None:
        return None
    dtype = PRECISIONS[job.precision or "bf16"].peak
    dense, sparse = device.peak.get(dtype), device.peak_sparse.get(dtype)
    if dense is None or abs(claimed / dense.value - 1.0) <= AGREE:
        return None
    doubled = sparse is not None and abs(claimed / sparse.value - 1.0) <= AGREE
    return Remark(
        "sparse-peak-as-dense" if doubled else "wrong-peak",
        f"the log divides by {claimed / 1e12:.4g} TFLOP/s; the dense {dtype} peak of {device.name} is {dense.value / 1e12:.4g}",
        "do not compare the MFU of the log; use the one computed here",
        {"claimed_peak": claimed, "peak": float(dense.value)},
    )


def _check_claim(rates: Rates | None) -> Remark | None:
    """Remark where the printed FLOP/s agree with no computed rate."""
    if rates is None or rates.claimed_flops is None or rates.claim.startswith("agrees"):
        return None
    return Remark(
        "claim-disagrees",
        f"the log prints {rates.claimed_flops / 1e12:.4g} TFLOP/s per GPU, which {rates.claim}",
        "the tool counts other FLOPs (half of attention, no output layer, forward only) or divides by another number of GPUs",
        {"claimed": rates.claimed_flops, "model": rates.model_flops, "hardware": rates.hardware_flops},
    )


def _check_loader(share: float | None) -> Remark | None:
    """Remark where a step waits long for the loader."""
    if share is None or share < WAITED:
        return None
    return Remark(
        "loader-waited-for",
        f"waiting for the loader takes {share:.1%} of a step: at most {1.0 / (1.0 - min(share, 0.999)):.2f} times faster without it",
        "it costs time only where the GPU idles, which a log does not show: take a trace before adding workers",
        {"data_share": share},
    )


def _check_drift(steps: Steps | None) -> Remark | None:
    """Remark where the second half of the steps is clearly slower or faster than the first."""
    if steps is None or steps.drift is None:
        return None
    # standard error of the difference of the halves' medians, if nothing drifts
    error = NORMAL_MAD * NORMAL_MEDIAN * steps.mad * 2.0 / math.sqrt(steps.lines)
    if abs(steps.drift) < max(QUIET, SURE * error / steps.median):
        return None
    slower = "slower" if steps.drift > 0 else "faster"
    return Remark(
        "drift",
        f"the second half of the lines is {abs(steps.drift):.1%} {slower} than the first",
        "scheduled longer sequences or windows, lower clocks under heat, or a busy network: compare clocks",
        {"drift": steps.drift, "mad_seconds": steps.mad},
    )


def _check_start(log: Log, unusual: list[str], steps: Steps | None) -> Remark | None:
    """Remark where the first line takes much longer than the median."""
    if steps is None or not unusual or "warm-up" not in unusual[0] or not math.isfinite(log.seconds[0]):
        return None
    times = float(log.seconds[0]) / steps.median
    if times < SLOW_START:
        return None
    return Remark(
        "warm-up",
        f"the first line, up to iteration {int(log.iteration[0])}, takes {times:.2f} times the median",
        "compilation, allocation and connections; left out here, but included in a mean over the whole log",
        {"first_seconds": float(log.seconds[0]), "median_seconds": steps.median},
    )


def remarks(
    log: Log, job: LoggedJob, steps: Steps | None, rates: Rates | None, unusual: list[str], share: float | None, device: Accelerator | None
) -> tuple[Remark, ...]:
    """All remarks that apply; impossible figures first."""
    candidates = (
        _check_mfu(rates),
        _check_claimed_mfu(log),
        _check_peak(log, job, device),
        _check_claim(rates),
        _check_loader(share),
        _check_drift(steps),
        _check_start(log, unusual, steps),
    )
    return tuple(f for f in candidates if f is not None)


def remarks_on_run(run: WholeRun | None) -> tuple[Remark, ...]:
    """Remarks on the run as a whole: time without progress, changes of the step time, stragglers."""
    if run is None:
        return ()
    return (*_goodput(run), *_changes(run), *_stragglers(run))


def _goodput(run: WholeRun) -> Iterator[Remark]:
    """Remark where a tenth of the time made no progress, with the part that took most of it."""
    lost, ran = run.wall_seconds - run.useful_seconds - run.warm_up_seconds, run.wall_seconds - run.warm_up_seconds
    if run.iterations < SPREAD_OVER or lost < WAITED * ran:
        return
    parts = {
        "between the steps": run.between_seconds or 0.0,
        "in iterations that were made again": run.repeated_seconds,
        "in iterations that were skipped": run.skipped_seconds,
        "in iterations slower than usual": run.slower_seconds,
    }
    where = max(parts, key=lambda name: parts[name])
    yield Remark(
        "lost-time",
        f"{run.goodput:.1%} of {run.wall_seconds:,.0f} s made progress at the usual step time; {parts[where]:,.0f} s are {where}",
        ADVICE[where],
        {"goodput": run.goodput, "wall_seconds": run.wall_seconds, "lost_seconds": run.wall_seconds - run.useful_seconds},
    )


def _changes(run: WholeRun) -> Iterator[Remark]:
    """Remark on the changes of the step time, all in one."""
    if not run.changes:
        return
    first = run.changes[0]
    yield Remark(
        "change",
        "; ".join(_describe_change(change) for change in run.changes),
        "compare what began then: clocks and temperature (nvidia-smi -q -d PERFORMANCE), neighbours on network or storage, lengths",
        {"iteration": float(first.iteration), "before_seconds": first.before_seconds, "after_seconds": first.after_seconds},
    )


def _describe_change(change: Change) -> str:
    """One change in words."""
    slower = "slower" if change.ratio > 1.0 else "faster"
    at = "" if change.at_seconds is None else f" ({change.at_seconds:,.0f} s after the first line)"
    size = f"{abs(change.ratio - 1.0):.1%} {slower}"
    return f"from iteration {change.iteration} on{at} steps are {size}: {change.before_seconds:.4g} s, then {change.after_seconds:.4g} s"


def _stragglers(run: WholeRun) -> Iterator[Remark]:
    """Remark on ranks or hosts that are slower than the others."""
    if not run.stragglers:
        return
    named = ", ".join(f"{one.name} ({one.ratio:.2f} x)" for one in run.stragglers)
    yield Remark(
        "straggler",
        f"slower than the median: {named}",
        "trace that rank: its clocks, its input, its share of the work; swap its node and see whether the delay moves with it",
        {"ratio": run.stragglers[0].ratio},
    )
