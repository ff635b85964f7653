"""What a step waits because micro-batches of equal tokens have unequal work: for the slowest rank, and for the longest in a pipeline."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ironlaw.estimate.documents.columns import Sequences
from ironlaw.estimate.documents.slowest import Slowest
from ironlaw.estimate.layer.attention import FLASH_KERNELS, UNFUSED_KERNELS
from ironlaw.job import Job
from ironlaw.law import lengths as law
from ironlaw.plan import Plan
from ironlaw.terms import Term, leaf, total

SLOWEST, LONGEST = "slowest rank", "longest micro-batch"  # keys of the terms
_CORES = (*FLASH_KERNELS, *UNFUSED_KERNELS)


def waits(job: Job, plan: Plan, parts: Sequence[Term]) -> list[Term]:
    """The waiting of a step whose mean micro-batches and mean bubble are the first of its ``parts``.

    All ranks meet at the end of a step. Ranks that share weights (ZeRO 3) or experts meet in every layer, so in every micro-batch. A rank's
    longest micro-batch is taken as independent of whether the rank is the slowest: the sum is a lower bound of what both add.
    """
    micro_batches, bubble = parts[:2]
    return waits_of(slowest_of(job, plan), micro_batches.value, bubble.value, attention_share(micro_batches))


def waits_of(slowest: tuple[Slowest, Slowest], micro_batches: Any, bubble: Any, share: Any) -> list[Term]:
    """The waiting beside mean micro-batches, of whose time attention takes a ``share``, and beside the bubble of equal ones."""
    tokens, attention = slowest
    return [
        leaf(
            "waiting for the slowest rank",
            law.wait_for_slowest,
            "s",
            "data",
            key=SLOWEST,
            time=micro_batches,
            share=share,
            slowest_tokens=tokens.expected,
            slowest_attention=attention.expected,
        ),
        leaf(
            "pipeline waits for the longest micro-batch",
            law.fill_of_unequal,
            "s",
            "pipeline",
            key=LONGEST,
            bubble=bubble,
            share=share,
            largest_tokens=tokens.largest,
            largest_attention=attention.largest,
        ),
    ]


def mixed(levels: Sequence[tuple[float, Any, list[Term]]]) -> list[Term]:
    """The parts of a step whose micro-batches take different numbers of context ranks: each part summed over them by their shares."""
    found = []
    for same in zip(*(parts for _, _, parts in levels), strict=True):
        each = [part.repeated(share) for (_, share, _), part in zip(levels, same, strict=True)]
        named = [part.named(f"on {ranks:g} context rank{'s' * (ranks > 1.0)}") for (ranks, _, _), part in zip(levels, each, strict=True)]
        found.append(total(same[0].name, named, key=same[0].key))
    return found


def slowest_of(job: Job, plan: Plan, balance: str = "") -> tuple[Slowest, Slowest]:
    """The slowest rank over the mean in every plan, by tokens and by the work of attention; with another ``balance`` where it is named."""
    assert job.documents is not None
    documents = job.documents.replace(balance=balance) if balance else job.documents
    return Sequences.of(documents, plan).slowest(job.model, plan, plan.dp, ranks_that_meet(plan))


def ranks_that_meet(plan: Plan) -> Any:
    """Data-parallel ranks that meet in every micro-batch: those that share weights under ZeRO 3, or that share experts."""
    weights = np.where(plan.zero >= 3.0, plan.dp_shard, 1.0)
    experts = np.maximum(plan.expert_ways / (plan.tp * plan.cp), 1.0)
    return np.minimum(np.maximum(weights, experts), plan.dp)


def attention_share(term: Term) -> Any:
    """The share of a term's time that the kernels of attention take."""
    return np.clip(_attention_time(term) / np.where(term.value > 0.0, term.value, 1.0), 0.0, 1.0)


def _attention_time(term: Term) -> Any:
    if term.key in _CORES:
        return term.value
    time: Any = 0.0
    for part in term.parts:
        time = time + _attention_time(part)
    return time * term.times if term.parts else 0.0
