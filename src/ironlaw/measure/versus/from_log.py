"""Compare a log, or a measured throughput, with the estimate of the same run: its whole step, its MFUs, and what could explain the rest.

What the log says of its run is taken: batch, sequence, plan. Options of the question come first. While the tokens of a step are unknown, a
step time is not compared, because the estimate would be of another run.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from ironlaw import units
from ironlaw.cautions.record import Caution
from ironlaw.cautions.table import caution
from ironlaw.errors import QuestionError
from ironlaw.estimate.what_if.measured_run import measured_run
from ironlaw.measure.logs.asked import missing_for_tokens
from ironlaw.measure.logs.reading import LogReading
from ironlaw.measure.versus.compare import Comparison, Measured, compare
from ironlaw.measure.versus.predicted import read_estimate, read_saved_estimate, run_estimate
from ironlaw.question.assumptions import printed
from ironlaw.question.options import flag
from ironlaw.terms import scalar

REPEATED = (
    "model", "on", "gpus",
    "seq_len", "global_batch_size", "tp", "sp", "pp", "vpp", "cp", "zero", "micro_batch_size", "precision", "recompute",
)  # fmt: skip


def compare_log(
    log: LogReading | None,
    tokens_per_second: float | None,
    against: str | Path | None,
    question: Mapping[str, Any],
    folders: tuple[str, ...],
) -> tuple[Comparison | None, list[Caution]]:
    """The comparison, or None with the reason as a warning. ``tokens_per_second`` is given by the user, and is taken before the log's."""
    if against is not None:
        if log is None or log.steps is None:
            raise QuestionError("--against compares step times: give a log with step times, or --model instead")
        return compare(_measured(log, log.steps.median), read_saved_estimate(against)), []
    batch_given = bool({"global_batch_size", "global_batch_tokens"} & set(question))
    run = {} if log is None else {name: value for name, value in log.run.items() if name != "global_batch_size" or not batch_given}
    options = {**run, **{name: value for name, value in question.items() if value is not None}}
    rate = tokens_per_second if tokens_per_second is not None else None if log is None else log.tokens_per_second
    timed = log is not None and log.steps is not None and tokens_per_second is None
    if timed and (missing := missing_for_tokens(options)):
        assert log is not None
        length = "" if log.seq_len_that_fits is None else f" (the TFLOP/s that it prints agree with --seq-len {log.seq_len_that_fits})"
        return None, [caution("not-compared", missing=missing, length=length)]
    estimate = run_estimate(options, folders)
    group, at = estimate.place_of(0)
    tokens = scalar(group.plan.global_batch_size, at) * scalar(group.plan.seq_len, at)
    seconds = log.steps.median if timed and log is not None and log.steps is not None else tokens / float(rate or 0.0)
    found = compare(_measured(log, seconds), read_estimate(estimate))
    warnings = list(found.warnings)
    if not timed and (missing := missing_for_tokens(options)):
        warnings.append(caution("compared-with-best-batch", tokens=tokens, missing=missing))
    return replace(
        found,
        run=measured_run(group, at, step=seconds),
        next_command=_next_command({**options, "gpus": int(scalar(group.plan.gpus, at))}, seconds),
        warnings=tuple(warnings),
    ), []


def _measured(log: LogReading | None, seconds: float) -> Measured:
    """A measured step without parts."""
    device = log.rates.device if log is not None and log.rates and log.rates.device else ""
    return Measured(seconds, {}, device=device, world_size=None if log is None else log.world_size)


def _next_command(options: Mapping[str, Any], seconds: float) -> str:
    """The command that lists every operator of the predicted step beside the measured one."""
    model = options["model"]
    if isinstance(model, Mapping):
        model = ",".join(f"{name}={value}" for name, value in model.items())
    named = {name: options[name] for name in REPEATED if name in options and name != "model"}
    words = [f"{flag(name)} {('on' if value else 'off') if isinstance(value, bool) else printed(value)}" for name, value in named.items()]
    return f"ironlaw roofline {model} {' '.join(words)} --measured {units.show(seconds, 's', 4).replace(' ', '')}"
