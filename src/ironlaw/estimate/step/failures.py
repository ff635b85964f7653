"""A run with failures, over columns of any shape that broadcast."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from ironlaw.estimate.bind.failures import FailureRates
from ironlaw.estimate.layer.counts import total_parameters
from ironlaw.estimate.layer.trained import adapter_parameters
from ironlaw.job import Job
from ironlaw.law import goodput as law
from ironlaw.terms import Term, leaf

CHECKPOINT_BYTES = 14.0  # of a parameter: 2-byte weight, fp32 master weight and two moments


@dataclass(frozen=True, eq=False, repr=False)
class Failures:
    """The terms of a run with failures. Where failures leave almost no progress, ``seconds``, ``goodput`` and ``count`` are nan."""

    mttf: Term  # of the job
    checkpoint_bytes: Term
    checkpoint_time: Term
    interval: Term  # seconds of work from one checkpoint to the next
    seconds: Term  # of the run, with failures and checkpoints
    goodput: Term
    count: Term

    def trees(self) -> list[Term]:
        """All terms, each after those it is computed from."""
        return [self.mttf, self.checkpoint_bytes, self.checkpoint_time, self.interval, self.seconds, self.goodput, self.count]


class Saved(NamedTuple):
    """What a checkpoint holds: parameters, and the bytes of each with its states."""

    parameters: Any
    bytes_per_parameter: float = CHECKPOINT_BYTES


def saved_by(job: Job) -> Saved:
    """The checkpoint of a job: all parameters with Adam's states; with adapters these alone, as no step changes the other weights.

    Source: PEFT, PeftModel.save_pretrained (adapters only, the base model stays as it was published)
    """
    if not job.lora_rank:
        return Saved(total_parameters(job.model))
    kept = job.framework.adapter_bytes
    master = job.optimizer.master_bytes if kept is None and job.framework.parameter_bytes is None and job.precision.master_weights else 0.0
    weight = job.precision.parameter_bytes if kept is None else kept.value
    return Saved(adapter_parameters(job), weight + master + job.optimizer.matrices.state_bytes)


def checkpoint_size(parameters: Any, bytes_per_parameter: Any = CHECKPOINT_BYTES) -> Any:
    """Bytes of a checkpoint: ``bytes_per_parameter parameters``; 14 with the states of Adam."""
    return bytes_per_parameter * parameters


def failures_of(rates: FailureRates, gpus: Any, useful: Any, steps: Any, saved: Saved) -> Failures:
    """The run with failures, from ``useful``, its seconds without failures and without checkpoints.

    ``gpus``, ``useful``, ``steps`` (of the optimizer) and the parameters of ``saved`` are numbers or arrays that broadcast.
    """
    mttf = leaf("time between failures", law.cluster_mttf, "s", mttf_per_accelerator=rates.mttf, gpus=gpus)
    size = leaf("checkpoint size", checkpoint_size, "B", **saved._asdict())
    written = leaf("checkpoint time", law.write_time, "s", size=size.value, bandwidth=rates.storage_bandwidth(gpus))
    if rates.checkpoint_every is not None:
        interval = leaf("checkpoint interval", _every, "s", steps=rates.checkpoint_every, all_steps=steps, useful=useful)
    else:
        interval = leaf("checkpoint interval", _best, "s", checkpoint_time=written.value, mttf=mttf.value, useful=useful)
    seconds = leaf(
        "with failures", law.time_with_failures, "s", seconds=useful, checkpoint_interval=interval.value,
        checkpoint_time=written.value, restart_time=rates.restart_time, mttf=mttf.value,
    )  # fmt: skip
    return Failures(
        mttf=mttf,
        checkpoint_bytes=size,
        checkpoint_time=written,
        interval=interval,
        seconds=seconds,
        goodput=leaf("goodput", law.goodput, "1", useful=useful, wall=seconds.value),
        count=leaf("failures", law.expected_failures, "1", wall=seconds.value, mttf=mttf.value),
    )


def _every(steps: Any, all_steps: Any, useful: Any) -> Any:
    """Work of so many steps, at most the whole run: ``useful min(steps / all_steps, 1)``."""
    return useful * np.minimum(steps / all_steps, 1.0)


def _best(checkpoint_time: Any, mttf: Any, useful: Any) -> Any:
    """Daly's interval, at most the whole run: ``min(checkpoint_interval_daly(checkpoint_time, mttf), useful)``."""
    return np.minimum(law.checkpoint_interval_daly(checkpoint_time, mttf), useful)
