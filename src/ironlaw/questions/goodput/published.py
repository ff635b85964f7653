"""What is published about failures beside what the laws say of it with defaults: what agrees, what misses, what no one can check."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from ironlaw import units
from ironlaw.questions.answer import Column
from ironlaw.questions.asked_run import one

if TYPE_CHECKING:
    from ironlaw.catalog.records import FailureLog
    from ironlaw.cluster import Cluster

CHECKS = (
    Column("where", "where"),
    Column("figure", "figure"),
    Column("published", "published"),
    Column("predicted", "law says"),
    Column("verdict", "verdict"),
)
NEAR = 1.1  # a count, a size or a time agrees within this factor
LIKE = 0.03  # a share agrees within this much
MONTH = 30 * 86400.0


def rate_of(log: FailureLog) -> float | None:
    """Accelerator time for each failure, where both are counted [s]."""
    if log.time is None or log.failures is None:
        return None
    return log.gpus.value * log.time.value / log.failures.value


def checks(cluster: Cluster, folders: tuple[str, ...] = ()) -> list[dict[str, Any]]:
    """One row for every published figure that a law of failures has an answer to."""
    from ironlaw.catalog import load

    logs = [load.record("failures", name, folders) for name in load.names("failures", folders)]
    return [row for log in logs for row in _of(log, cluster)]


def _of(log: FailureLog, cluster: Cluster) -> Iterator[dict[str, Any]]:
    from ironlaw.estimate.failures import checkpoint_size, failures_of
    from ironlaw.law import goodput as law

    default = cluster.systems.accelerator_mttf
    sources = {item.source.url for item in (log.failures, log.goodput) if item is not None and item.source is not None}
    own = default.source is not None and default.source.url in sources
    if log.failures is not None and log.time is not None:
        count = float(law.expected_failures(log.time.value, law.cluster_mttf(default.value, log.gpus.value)))
        figure = f"failures of {log.gpus.value:,.0f} in {log.time.text}"
        yield _row(log, figure, f"{log.failures.value:g}", f"{count:.3g}", "" if own else _near(count, log.failures.value))
    if log.job_mttf is not None and log.node_mttf is not None:
        said, seen = log.node_mttf.value, log.job_mttf.value
        verdict = _near(said, seen) + ": failures are not independent"
        yield _row(log, f"time between failures of {log.gpus.value:,.0f}", units.show(seen, "s"), units.show(said, "s"), verdict)
    if log.parameters is not None and log.checkpoint_size is not None:
        size = float(checkpoint_size(log.parameters.value))
        said_text, seen_text = f"{size / 1e12:.3g} TB", log.checkpoint_size.text
        yield _row(log, "size of a checkpoint", seen_text, said_text, _near(size, log.checkpoint_size.value))
    if log.checkpoint_share is not None and log.checkpoint_time is not None and log.checkpoint_interval is not None:
        wall = float(law.time_with_failures(1.0, log.checkpoint_interval.value, log.checkpoint_time.value, 0.0, 1e15))
        share = wall - 1.0
        yield _row(log, "time spent on checkpoints", log.checkpoint_share.text, f"{share:.2%}", _near(share, log.checkpoint_share.value))
    if log.goodput is not None and log.parameters is not None:
        found = failures_of({}, cluster, log.gpus.value, log.time.value if log.time else MONTH, 1.0, log.parameters.value)
        said = one(found.goodput.value)
        close = abs(said - log.goodput.value) <= LIKE
        verdict = "agrees" if close else f"misses by {abs(said - log.goodput.value):.2f}: hangs, bugs and queues stop runs too"
        yield _row(log, "goodput", f"{log.goodput.value:.2f}", f"{said:.2f}", "" if own else verdict)


def _near(said: float, seen: float) -> str:
    factor = said / seen
    if 1.0 / NEAR <= factor <= NEAR:
        return "agrees"
    return f"misses: {factor:.2g} times what was seen"


def _row(log: FailureLog, figure: str, published: str, predicted: str, verdict: str) -> dict[str, Any]:
    """A row; no verdict means that the default is this very number."""
    verdict = verdict or "not validated: the default is taken from it"
    return {"where": log.title, "figure": figure, "published": published, "predicted": predicted, "verdict": verdict}
