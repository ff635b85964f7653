"""Compare published failures, checkpoints and goodput with the laws and their default inputs."""

from __future__ import annotations

from typing import Any

from ironlaw import units
from ironlaw.catalog import load
from ironlaw.catalog.records import FailureLog
from ironlaw.cluster import Cluster
from ironlaw.estimate.bind.failures import bind_failures
from ironlaw.estimate.step.failures import Saved, checkpoint_size, failures_of
from ironlaw.law import goodput as law
from ironlaw.question.asked import Asked
from ironlaw.questions.answer import Column
from ironlaw.terms import scalar

CHECKS = (
    Column("where", "run"), Column("figure", "figure"), Column("published", "published"), Column("predicted", "predicted"),
    Column("verdict", "verdict"),
)  # fmt: skip
NEAR = 1.1  # a count, a size or a time agrees within this factor
LIKE = 0.03  # a share agrees within this much
MONTH = 30 * 86400.0
SAME_NUMBER = "not validated: the default is this number"


def time_per_failure(log: FailureLog) -> float | None:
    """Accelerator time per failure [s]; None where the log does not count both."""
    if log.time is None or log.failures is None:
        return None
    return log.gpus.value * log.time.value / log.failures.value


def check_published(cluster: Cluster, folders: tuple[str, ...] = ()) -> list[dict[str, Any]]:
    """One row for every published figure that a law of failures predicts."""
    logs = [load.record("failures", name, folders) for name in load.names("failures", folders)]
    return [
        {"where": log.title, "figure": figure, "published": published, "predicted": predicted, "verdict": verdict}
        for log in logs
        for figure, published, predicted, verdict in _check_log(log, cluster)
    ]


def _check_log(log: FailureLog, cluster: Cluster) -> list[tuple[str, str, str, str]]:
    """Figure, published value, prediction and verdict of each figure of one log."""
    default = cluster.systems.accelerator_mttf
    sources = {item.source.url for item in (log.failures, log.goodput) if item is not None and item.source is not None}
    is_default = default.source is not None and default.source.url in sources
    checks = []
    if log.failures is not None and log.time is not None:
        count = float(law.expected_failures(log.time.value, law.cluster_mttf(default.value, log.gpus.value)))
        verdict = SAME_NUMBER if is_default else _judge(count, log.failures.value)
        checks.append((f"failures of {log.gpus.value:,.0f} in {log.time.text}", f"{log.failures.value:g}", f"{count:.3g}", verdict))
    if log.job_mttf is not None and log.node_mttf is not None:
        predicted, seen = log.node_mttf.value, log.job_mttf.value
        verdict = _judge(predicted, seen) + ": failures are not independent"
        figure = f"time between failures of {log.gpus.value:,.0f}"
        checks.append((figure, units.show(seen, "s"), units.show(predicted, "s"), verdict))
    if log.parameters is not None and log.checkpoint_size is not None:
        size = float(checkpoint_size(log.parameters.value))
        verdict = _judge(size, log.checkpoint_size.value)
        checks.append(("size of a checkpoint", log.checkpoint_size.text, f"{size / 1e12:.3g} TB", verdict))
    if log.checkpoint_share is not None and log.checkpoint_time is not None and log.checkpoint_interval is not None:
        share = float(law.time_with_failures(1.0, log.checkpoint_interval.value, log.checkpoint_time.value, 0.0, 1e15)) - 1.0
        verdict = _judge(share, log.checkpoint_share.value)
        checks.append(("time spent on checkpoints", log.checkpoint_share.text, f"{share:.2%}", verdict))
    if log.goodput is not None and log.parameters is not None:
        time = log.time.value if log.time else MONTH
        rates, saved = bind_failures(Asked(), cluster, []), Saved(log.parameters.value)
        predicted = scalar(failures_of(rates, log.gpus.value, time, 1.0, saved).goodput.value)
        off = abs(predicted - log.goodput.value)
        verdict = "agrees" if off <= LIKE else f"misses by {off:.2f}: hangs, bugs and queues stop runs too"
        checks.append(("goodput", f"{log.goodput.value:.2f}", f"{predicted:.2f}", SAME_NUMBER if is_default else verdict))
    return checks


def _judge(predicted: float, seen: float) -> str:
    factor = predicted / seen
    return "agrees" if 1.0 / NEAR <= factor <= NEAR else f"misses: {factor:.2g} times the published value"
