"""Interpret a training log: step times, rates against a named peak, and the bottlenecks that it rules out.

A log has times of whole steps. If matrix products at the peak of the device take more than half of a step, nothing else can take the larger
part. Otherwise a log cannot show what the rest is, and the verdict says so.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from ironlaw.catalog.model import Model
from ironlaw.cautions.record import Caution, as_record
from ironlaw.errors import QuestionError
from ironlaw.measure.logs import Log
from ironlaw.measure.logs.asked import batch_of_rate, fitting_length, options_of_run
from ironlaw.measure.logs.collective_rates import CollectiveReading, collective_reading
from ironlaw.measure.logs.job import LoggedJob, logged_job
from ironlaw.measure.logs.rates import Rates, assumed_precision, device_of, peak_of, rates_of, read_claim, tokens_per_second_of
from ironlaw.measure.logs.remarks import Excluded, Remark, excluded_roofs, remarks, remarks_on_run
from ironlaw.measure.logs.steps import Aside, Steps, Timer, asides, loader_share, median_of, ordinary_steps, set_aside, timers_of
from ironlaw.measure.logs.whole_run import WholeRun, whole_run
from ironlaw.measure.roof import DATA

NOT_IDENTIFIABLE = "a log cannot name the bottleneck"
UNDECIDED = 4  # exit status without a verdict


@dataclass(frozen=True)
class LogReading:
    """The interpretation of one log."""

    path: str
    format: str
    world_size: int | None
    steps: Steps | None
    samples_seconds: tuple[float, ...]  # the ordinary lines, in order
    aside: tuple[Aside, ...]
    rates: Rates | None
    why_no_rates: str
    why_no_mfu: str
    timers: tuple[Timer, ...]  # of the framework, on the rank that prints
    data_share: float | None
    memory: float | None  # [B] highest
    power: float | None  # [W] median, per GPU
    collectives: CollectiveReading | None
    tokens_per_second: float | None  # of all GPUs together
    claimed_flops: float | None  # FLOP/s per GPU that the log prints
    claimed_mfu: float | None  # its share of the dense peak of the device, as the framework counts FLOPs
    run: dict[str, Any]  # options of an estimate that the log gives
    seq_len_that_fits: int | None  # a usual length whose FLOPs agree with the printed rate, where the log has no length
    gain: tuple[float, float] | None  # speed-up with only matrix products at peak left: at least, at most
    excluded: tuple[Excluded, ...]
    findings: tuple[Remark, ...]
    verdict: str
    exit_status: int
    said: tuple[str, ...]  # sources of the values of the job
    arguments: dict[str, str]
    claims: dict[str, float]
    skipped: dict[str, int]
    warnings: tuple[Caution, ...]
    whole_run: WholeRun | None = None  # its goodput, changes and stragglers

    def data(self) -> dict[str, Any]:
        """Plain data for JSON; values that are not finite become None."""
        plain: dict[str, Any] = _plain(asdict(self))
        if plain["steps"] is not None:
            plain["steps"] = _in_seconds(plain["steps"], ("median", "mean", "p5", "p95", "mad"))
        plain["aside"] = [_in_seconds(aside, ("median",)) for aside in plain["aside"]]
        if plain["collectives"] is not None:
            plain["collectives"]["fits"] = [_in_seconds(fit, ("latency",)) for fit in plain["collectives"]["fits"]]
        plain["whole_run"] = None if self.whole_run is None else _plain(self.whole_run.data())
        plain["warnings"] = [as_record(one) for one in self.warnings]
        return plain


def _in_seconds(entry: dict[str, Any], times: tuple[str, ...]) -> dict[str, Any]:
    """Rename the keys of times so that they end in their unit."""
    return {f"{name}_seconds" if name in times else name: value for name, value in entry.items()}


def log_reading(
    log: Log,
    model: str | Model | None = None,
    on: str | None = None,
    *,
    gpus: int | None = None,
    seq_len: int | None = None,
    global_batch_size: int | None = None,
    precision: str | None = None,
    recompute: str | None = None,
    folders: tuple[str, ...] = (),
) -> LogReading:
    """Interpret ``log``. ``on`` is an accelerator of the catalogue; without it, the device named in the log is looked up there.

    An unknown ``on`` raises UnknownNameError with the nearest names. If the log names an unknown device, there is no MFU, and the reason is
    stored.
    """
    job = logged_job(log, model, gpus, seq_len, global_batch_size, precision, recompute, folders)
    unusual = set_aside(log)
    steps = ordinary_steps(log, unusual)
    device, device_source = device_of(log, on, folders)
    rates, why = rates_of(log, job, steps, unusual, device)
    sources = [*job.sources, *([device_source] if device else [])]
    if rates is not None and device is not None and job.precision is None:
        sources.append(f"precision: not in the log; {assumed_precision(device)} is assumed")
    timers = timers_of(log, steps)
    share = loader_share(log, unusual, timers)
    excluded = tuple(excluded_roofs(steps, rates, share))
    whole = whole_run(log, unusual, steps)
    findings = (*remarks(log, job, steps, rates, unusual, share, device), *remarks_on_run(whole))
    verdict, status = _verdict(log, steps, excluded, findings)
    per_gpu, claimed, run = (
        tokens_per_second_of(log, job, steps, unusual),
        read_claim(log, unusual),
        options_of_run(log, job, model is not None),
    )
    if claimed is None and device is not None and 0.0 < (mfu := log.claims.get("mfu", 0.0)) <= 1.0:
        claimed = mfu * float(peak_of(device, job.precision).value)
        sources.append(f"TFLOP/s: the MFU of {mfu:.1%} that the log prints, of the dense peak of {device.name}")
    seconds = steps.median if steps is not None and log.per == "iteration" else None
    if batch := batch_of_rate(log, job, per_gpu, seconds):
        run["global_batch_size"] = batch
        sources.append(f"batch: {batch} sequences, from the printed rate of tokens and the step time")
    return LogReading(
        path=log.path,
        format=log.format,
        world_size=job.gpus,
        steps=steps,
        samples_seconds=tuple(float(s) for s, why in zip(log.seconds, unusual, strict=True) if not why),
        aside=asides(log, unusual),
        rates=rates,
        why_no_rates=why,
        why_no_mfu="" if device else device_source,
        timers=timers,
        data_share=share,
        memory=_find_highest_memory(log),
        power=median_of(log.power, unusual),
        collectives=None if log.calls is None else collective_reading(log.calls, job.gpus),
        tokens_per_second=_rate_of_job(log, job, per_gpu, unusual),
        claimed_flops=claimed,
        claimed_mfu=None if claimed is None or device is None else claimed / peak_of(device, job.precision).value,
        run=run,
        seq_len_that_fits=None if job.seq_len else fitting_length(job.model, claimed, seconds, run),
        gain=_bound_gain(rates),
        excluded=excluded,
        findings=findings,
        verdict=verdict,
        exit_status=status,
        said=tuple(sources),
        arguments=log.arguments,
        claims=log.claims,
        skipped=log.skipped,
        warnings=log.warnings,
        whole_run=whole,
    )


def _rate_of_job(log: Log, job: LoggedJob, per_gpu: float | None, unusual: list[str]) -> float | None:
    """Tokens per second of all GPUs: from the rate of one, or as printed."""
    if per_gpu is not None and job.gpus:
        return per_gpu * job.gpus
    return median_of(log.tokens_per_second, unusual) if log.tokens_of == "job" else None


def _find_highest_memory(log: Log) -> float | None:
    peaks = [] if log.memory is None else [float(v) for v in log.memory if math.isfinite(v)]
    peaks += [log.claims["memory_allocated_max"]] if "memory_allocated_max" in log.claims else []
    return max(peaks) if peaks else None


def _bound_gain(rates: Rates | None) -> tuple[float, float] | None:
    """Bounds of the speed-up by any change other than fewer or cheaper matrix products."""
    if rates is None or rates.hfu is None or not 0.0 < rates.hfu <= 1.0:
        return None
    return 1.0, 1.0 / rates.hfu


def _verdict(log: Log, steps: Steps | None, excluded: Sequence[Excluded], findings: Sequence[Remark]) -> tuple[str, int]:
    """The verdict and its exit status: a log can only rule out bottlenecks."""
    if log.calls is not None:
        return "a benchmark of collectives: it has rates, but no step", 0
    if steps is None:
        has = "rates, but no step times" if log.tokens_per_second is not None else "no time of an ordinary step"
        return f"{NOT_IDENTIFIABLE}: this one has {has}", UNDECIDED
    if any(f.code == "mfu-above-100" for f in findings):
        return f"{NOT_IDENTIFIABLE}: an MFU above 100 % is impossible; check model, batch, GPUs and device", UNDECIDED
    ruled_out = ", ".join("data loading" if e.roof == DATA else e.roof for e in excluded)
    return NOT_IDENTIFIABLE + (f"; ruled out: {ruled_out}" if ruled_out else ""), UNDECIDED


@dataclass(frozen=True)
class Efficiency:
    """Throughput per GPU of one log, relative to the log with the fewest GPUs."""

    path: str
    gpus: int
    per_gpu: float  # tokens per second and GPU
    efficiency: float  # 1 for the smallest


def parallel_efficiency(readings: Sequence[LogReading]) -> tuple[Efficiency, ...]:
    """Compare throughput per GPU in logs of one model on several numbers of GPUs; refuse different models and missing values."""
    rows = []
    for reading in readings:
        if reading.rates is None or reading.world_size is None:
            raise QuestionError(f"{reading.path}: no tokens per second and GPU: {reading.why_no_rates or 'the number of GPUs is missing'}")
        rows.append((reading.world_size, reading.rates, reading.path))
    if len({row[0] for row in rows}) < 2:
        raise QuestionError(
            "parallel efficiency compares different numbers of GPUs, and all these logs have one: give logs of at least two"
        )
    rows.sort(key=lambda row: row[0])
    _, base, path = rows[0]
    for _, rates, other in rows[1:]:
        if abs(rates.flop_per_token / base.flop_per_token - 1.0) > 1e-6:
            raise QuestionError(
                f"{other} and {path} are from different models: {rates.flop_per_token:.4g} and {base.flop_per_token:.4g} FLOP per token"
            )
    return tuple(Efficiency(p, n, r.tokens_per_second, r.tokens_per_second / base.tokens_per_second) for n, r, p in rows)


def _plain(value: Any) -> Any:
    """Python values for JSON; numbers that are not finite become None."""
    if isinstance(value, dict):
        return {str(k): _plain(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(v) for v in value]
    if isinstance(value, float | np.floating):
        return float(value) if math.isfinite(value) else None
    return int(value) if isinstance(value, np.integer) else value
