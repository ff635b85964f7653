"""Documents of many lengths in the answer: what they are, how they are packed, and what their lengths cost, as plain data."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from ironlaw.estimate.documents.columns import Sequences
from ironlaw.estimate.documents.keys import keys_seen
from ironlaw.estimate.documents.slowest import BALANCES
from ironlaw.estimate.layer.counts import attending_layers, attention_width
from ironlaw.estimate.step.load_imbalance import LONGEST, SLOWEST, slowest_of, waits_of
from ironlaw.estimate.step.step import step
from ironlaw.law import flops, lengths
from ironlaw.terms import Term, fold, leaf, scalar

if TYPE_CHECKING:
    from ironlaw.estimate.answer.group import Group

PASSES = 3.0  # forward, and twice as much backward, as model FLOPs count attention


def documents_data(group: Group, at: int) -> dict[str, Any]:
    """The key ``documents`` of a row of an estimate; nothing where all documents are alike."""
    documents, plan = group.job.documents, group.plan
    if documents is None:
        return {}
    found, spread = Sequences.of(documents, plan), documents.lengths
    batch, legal = scalar(np.broadcast_to(plan.global_batch_size, (plan.rows,)), at), bool(np.broadcast_to(group.legal, (plan.rows,))[at])

    def of(column: Any) -> float:
        return float(np.broadcast_to(column, (plan.rows,))[at])

    attention = {name: scalar(term, at) for name, term in attention_flop(group).items()}
    median, high = (of(seconds) if legal else None for seconds in step_quantiles(group))
    return {
        "documents": {
            "title": documents.title,
            "packing": documents.packing,
            "balance": documents.balance,
            "cp_by_length": documents.cp_by_length,
            "mean_length": spread.mean,
            "median_length": float(spread.quantile(0.5)),
            "length_95": float(spread.quantile(0.95)),
            "longest": spread.longest,
            "length_of_a_token": spread.of_a_token,
            "attended_length": of(found.span),
            "per_sequence": of(found.of_sequence),
            "per_step": of(found.of_sequence) * batch,
            "sequences_per_step": batch,
            "computed_tokens_per_sequence": of(found.computed),
            "real_tokens_per_sequence": of(found.real),
            "padding": scalar(group.throughput["padding"], at),
            "tokens_cut_off": 1.0 - of(found.kept),
            "attention_flop_needed": attention["needed"],
            "attention_flop_computed": attention["computed"],
            "slowest_over_mean": of(slowest_over_mean(group)) if legal else None,
            "step_median": median,
            "step_95": high,
            "step_by_balance": {name: of(step_with(group, name)) for name in BALANCES} if legal else None,
            **context_data(group, at, legal),
        }
    }


def step_with(group: Group, balance: str) -> Any:
    """The step where sequences are dealt to ranks in another way."""
    waited, filled = (group.step.tree[key] for key in (SLOWEST, LONGEST))
    slowest = slowest_of(group.job, group.plan, balance)
    other = waits_of(slowest, waited.inputs["time"], filled.inputs["bubble"], waited.inputs["share"])
    return group.step.tree.value + group.step.tree.times * (fold(other) - waited.value - filled.value)  # times: what own runs say


def context_data(group: Group, at: int, legal: bool) -> dict[str, Any]:
    """Where context ranks follow the documents: the share of the tokens on each number of ranks, and the step with all ranks for all."""
    job = group.job
    assert job.documents is not None
    if not job.documents.cp_by_length or not legal:
        return {}
    plan = group.plan.take([at])
    levels = Sequences.of(job.documents, plan).levels(plan)
    fixed = step(job.replace(documents=job.documents.replace(cp_by_length=False)), group.cluster, plan)
    return {
        "tokens_by_context_ranks": {f"{level.ranks:g}": scalar(np.broadcast_to(level.share, (1,))) for level in levels},
        "step_with_fixed_cp": scalar(fixed.tree) * scalar(group.step.tree.times, at),
    }


def attention_flop(group: Group) -> dict[str, Term]:
    """FLOP of attention in a step, causal, forward and backward: what documents need, and what is computed with padding."""
    assert group.job.documents is not None
    found, model = Sequences.of(group.job.documents, group.plan), group.job.model
    seen = partial(keys_seen, model)
    shape = {"num_attention_heads": attention_width(model), "head_dim": 1.0}
    times = PASSES * attending_layers(model)

    def of(name: str, tokens: Any, keys: Any) -> Term:
        sizes = {"batch": group.plan.global_batch_size, "seq_len": tokens, "key_length": keys}
        return leaf(name, flops.attention_core, "FLOP", times=times, **sizes, **shape)

    return {
        "needed": of("attention FLOP that documents need", found.real, found.real_keys(seen)),
        "computed": of("attention FLOP that is computed", found.computed, found.keys(seen)),
    }


def slowest_over_mean(group: Group) -> Any:
    """Micro-batches of the slowest rank over those of the mean rank, expected over the steps of a run."""
    asked = group.step.tree[SLOWEST].inputs
    return lengths.slowest_over_mean(asked["share"], asked["slowest_tokens"], asked["slowest_attention"])


def step_quantiles(group: Group) -> tuple[Any, Any]:
    """The median and the 95th percentile of the step, which vary as the documents of steps do."""
    waited = group.step.tree[SLOWEST]
    tokens, attention = slowest_of(group.job, group.plan)
    time, share = waited.inputs["time"], waited.inputs["share"]
    found = []
    for name in ("median", "high"):
        other = lengths.wait_for_slowest(time, share, getattr(tokens, name), getattr(attention, name))
        found.append(group.step.tree.value + group.step.tree.times * (other - waited.value))
    return found[0], found[1]
