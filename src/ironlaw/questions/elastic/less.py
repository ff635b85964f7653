"""What to run with fewer accelerators: the best plan, the plan that keeps its parallel sizes, and what changing the sizes costs."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

from ironlaw import units
from ironlaw.cautions.record import Sentence
from ironlaw.errors import IronlawError, ValueRangeError
from ironlaw.estimate.fabric.placement import placement
from ironlaw.estimate.planner.possible import has_plan
from ironlaw.estimate.what_if.node_loss import Used, counts_to_try
from ironlaw.questions.answer import Column
from ironlaw.questions.elastic.base import Base
from ironlaw.questions.elastic.options import Loss
from ironlaw.terms import Term, leaf, scalar

DEFAULT = (Loss("1node", 1.0, "node"), Loss("1rack", 1.0, "rack"), Loss("1/3", 1.0 / 3.0, "share"))
LOSSES = (
    Column("lost", "lost"), Column("lost_gpus", "GPUs lost", "1"), Column("left", "left", "1"), Column("used", "used", "1"),
    Column("idle", "idle", "1"), Column("global_batch_size", "batch", "1"), Column("tokens_per_second", "tokens/s", "1"),
    Column("lost_share", "lost", "%"), Column("of_proportional", "of proportional", "%"), Column("memory_share", "memory", "%"),
    Column("all_left", "all that are left"), Column("plan", "plan"),
)  # fmt: skip
KEPT = (
    Column("lost", "lost"), Column("left", "left", "1"), Column("used", "used", "1"), Column("idle", "idle", "1"),
    Column("global_batch_size", "batch", "1"), Column("tokens_per_second", "tokens/s", "1"), Column("lost_share", "lost", "%"),
    Column("behind_best", "behind the best plan", "%"), Column("memory_share", "memory", "%"), Column("restart_seconds", "restart", "s"),
    Column("reshard_seconds", "re-sharding for the best plan", "s"), Column("worth_after_seconds", "worth it if longer than", "s"),
)  # fmt: skip


class Less(NamedTuple):
    """What is left after a loss, and the plans for it."""

    loss: Loss
    lost: float
    best: Used | None
    kept: Used | None


def count_lost(base: Base, loss: Loss) -> float:
    """Accelerators that a loss takes; a share is rounded up to whole accelerators."""
    cluster = base.group.cluster
    rack = scalar(placement(cluster, base.group.plan).largest)  # what the job takes of a rack
    unit = {"node": float(cluster.node.accelerators.value), "rack": rack, "accelerator": 1.0}
    lost = math.ceil(loss.number * base.gpus - 1e-9) if loss.unit == "share" else loss.number * unit[loss.unit]
    if lost >= base.gpus:
        raise ValueRangeError(f"--lost {loss.written} is {lost:,.0f} accelerators, must be fewer than the {base.gpus:,.0f} of --gpus")
    return float(lost)


def default_losses(base: Base) -> tuple[Loss, ...]:
    """A node, a rack and a third, each where it is less than all and not the same as the one before."""
    found: dict[float, Loss] = {}
    for loss in DEFAULT:
        try:
            found.setdefault(count_lost(base, loss), loss)
        except ValueRangeError:
            continue
    return tuple(found.values())


def after(base: Base, loss: Loss) -> Less:
    """The plans for what a loss leaves; the base's counts must be tabulated."""
    lost = count_lost(base, loss)
    left = base.gpus - lost
    return Less(loss, lost, base.best(left), base.keep_sizes(left))


def loss_row(base: Base, less: Less) -> dict[str, Any]:
    """The best plan for what is left, and what is lost against all accelerators and against their share of them."""
    left, used = base.gpus - less.lost, less.best
    row = {"lost": less.loss.label, "lost_gpus": less.lost, "left": left, "all_left": _describe_left(base, left, used)}
    if used is None:
        return {**row, "used": 0.0, "idle": left, "lost_share": 1.0, "of_proportional": 0.0, "plan": "none fits"}
    return {
        **row, "used": used.gpus, "idle": left - used.gpus, "global_batch_size": scalar(used.group.plan.global_batch_size),
        "tokens_per_second": used.rate, "lost_share": 1.0 - used.rate / base.rate,
        "of_proportional": used.rate / (base.rate * left / base.gpus), "memory_share": _memory_share(used), "plan": base.words(used.group),
    }  # fmt: skip


def _memory_share(used: Used) -> float:
    return scalar(used.group.memory.device) / float(used.group.memory.capacity)


def _describe_left(base: Base, left: float, used: Used | None) -> str:
    """Whether all accelerators that are left can be used, and the nearest count below that can."""
    if used is not None and used.gpus == left:
        return "used"
    why = {True: "a slower plan", False: "no plan fits", None: "nothing divides"}[_works(base, left)]
    if why == "a slower plan":
        return why
    below = (n for n in reversed(counts_to_try(base.group.cluster.node, left, base.batch)) if n < left)
    near = next((n for n in below if _works(base, n)), None)
    return why if near is None else f"{why}; {near:,.0f} work"


def _works(base: Base, gpus: float) -> bool | None:
    """True where a count has a plan that fits, False where none fits, None where none is legal."""
    row = base.counts.row._replace(gpus=gpus, global_batch_size=base.batch_of(gpus))
    bound = base.counts.bound
    try:
        return has_plan(bound.replace(asked=bound.asked.replace(rows=(row,))))
    except IronlawError:
        return None


def kept_row(base: Base, less: Less) -> dict[str, Any]:
    """The plan with the parallel sizes kept, and what re-sharding to the best plan costs and brings."""
    left, used = base.gpus - less.lost, less.kept
    restart = base.rates.restart_time.value
    row = {"lost": less.loss.label, "left": left, "restart_seconds": restart}
    if used is None:
        return {**row, "used": 0.0, "idle": left}
    best = less.best or used
    reshard = None if base.same_sizes(best) else scalar(reshard_term(base, best.gpus))
    faster = best.rate / used.rate - 1.0
    return {
        **row, "used": used.gpus, "idle": left - used.gpus, "global_batch_size": scalar(used.group.plan.global_batch_size),
        "tokens_per_second": used.rate, "lost_share": 1.0 - used.rate / base.rate, "behind_best": 1.0 - used.rate / best.rate,
        "memory_share": _memory_share(used), "reshard_seconds": reshard,
        "worth_after_seconds": None if reshard is None or faster <= 0.0 else reshard * (1.0 + 1.0 / faster),
    }  # fmt: skip


def reshard_term(base: Base, gpus: float) -> Term:
    """Time to write a checkpoint anew for other parallel sizes, on a count of accelerators."""
    size = base.failures(base.group).checkpoint_bytes
    return leaf("re-sharding", reshard_time, "s", size=size.value, bandwidth=base.rates.storage_bandwidth(gpus))


def reshard_time(size: Any, bandwidth: Any) -> Any:
    """The checkpoint is read once and written once: ``2 size / bandwidth``. A loader that re-shards as it reads needs none of it."""
    return 2.0 * size / bandwidth


def sentence(base: Base, less: Less) -> Sentence:
    """What a loss costs with the best plan, and with the parallel sizes kept, as a sentence of the headline."""
    rate = None if less.best is None else less.best.rate
    return Sentence(_describe_loss(base, less), "loss", {"lost": less.lost, "tokens_per_second": rate})


def _describe_loss(base: Base, less: Less) -> str:
    left = base.gpus - less.lost
    head = f"{less.loss.label} less, {left:,.0f} accelerators left: "
    if less.best is None:
        return head + "no plan fits"
    used = less.best
    idle = f", {left - used.gpus:,.0f} idle" if used.gpus < left else ""
    change = 1.0 - used.rate / base.rate
    words = f"{change:.1%} of the tokens/s lost" if change >= 0.0 else f"{-change:.1%} more tokens/s"
    lost = f"{words} with {less.lost / base.gpus:.1%} of the accelerators lost"
    text = f"{head}{used.rate:,.0f} tokens/s on {used.gpus:,.0f}{idle}, batch {scalar(used.group.plan.global_batch_size):,.0f}; {lost}"
    if less.kept is None:
        return text + "; no plan keeps the parallel sizes"
    if base.same_sizes(used):
        return text + "; the parallel sizes are kept"
    behind = 1.0 - less.kept.rate / used.rate
    return text + f"; with the parallel sizes kept {less.kept.rate:,.0f} on {less.kept.gpus:,.0f} ({behind:.1%} less)"


def terms_of(less: Less) -> list[Term]:
    """The terms of what a headline says of a loss."""
    found = []
    for used, what in ((less.best, "best plan"), (less.kept, "parallel sizes kept")):
        if used is not None:
            found.append(used.group.throughput["tokens_per_second"].named(f"tokens per second, {less.loss.label} less, {what}"))
    return found


def batch_sentence(base: Base) -> str:
    """What happens to the batch."""
    if base.scale:
        return "the batch shrinks with the accelerators: the learning rate and the number of steps change with it"
    return (
        f"the batch of {base.batch:,.0f} sequences is kept, by more accumulation, so the number of ranks must divide it;"
        " --batch scale lets data parallelism shrink rank by rank"
    )


def title(base: Base) -> str:
    """What is asked about."""
    return f"{base.group.job.model.title} on fewer than {base.gpus:,.0f} {base.group.cluster.accelerator.title}"


def full_sentence(base: Base) -> Sentence:
    """The run with all accelerators."""
    step = units.show(scalar(base.group.step.tree), "s")
    words = f"with all {base.gpus:,.0f}: {base.rate:,.0f} tokens/s, step {step}: {base.words(base.group)}"
    return Sentence(words, "whole", {"gpus": base.gpus, "tokens_per_second": base.rate, "seconds": scalar(base.group.step.tree)})
