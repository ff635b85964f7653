"""How one sequence is split over context ranks: tokens and heads of each rank in attention, and uneven work under a causal mask.

Of ``cp`` ranks, ``head_ranks`` trade heads for tokens; the other factor, ``sequence_ranks``, have different tokens in attention:

    ring, all-gather    1 and cp        all-to-all    cp and 1        all-to-all+ring    an inner group, and cp over it
"""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from ironlaw.estimate.documents.columns import sequences_of
from ironlaw.estimate.documents.keys import keys_seen
from ironlaw.estimate.layer.context_methods import method_of
from ironlaw.job import Job
from ironlaw.law import masks
from ironlaw.plan import Plan


def key_heads(job: Job) -> float:
    """Key heads of a layer's attention; in latent attention, all heads."""
    model = job.model
    return float(model.num_attention_heads if model.kv_lora_rank else model.num_key_value_heads)


def head_ranks(job: Job, plan: Plan) -> Any:
    """Context ranks that trade heads for tokens: none round a ring, all with all-to-all, else an inner group.

    Without ``cp_inner`` the inner group divides the key heads of a tensor-parallel rank and the context ranks, and a domain holds it, so
    that its all-to-all stays on the fast links: their greatest common divisor with the accelerators that a domain has left, or the
    largest power of two, which racks of 72 hold in shares of 64.
    """
    method = method_of(job)
    if not method.trades_heads:
        return 1.0
    if not method.passes_blocks:
        return plan.cp
    if job.cp_inner:
        return np.minimum(job.cp_inner, plan.cp)
    heads, room = (np.maximum(np.floor(n / plan.tp), 1.0).astype(np.int64) for n in (key_heads(job), job.cp_domain))
    shared = np.gcd(heads, plan.cp.astype(np.int64))
    twos = np.minimum(shared & -shared, 2 ** np.floor(np.log2(room)).astype(np.int64))
    return np.maximum(np.gcd(shared, room), twos).astype(np.float64)


def sequence_ranks(job: Job, plan: Plan) -> Any:
    """Context ranks that hold different tokens inside attention."""
    method = method_of(job)
    if method.has_two_levels:
        return plan.cp / head_ranks(job, plan)
    return 1.0 if method.trades_heads else plan.cp


def attended_span(job: Job, plan: Plan) -> Any:
    """Tokens attention reaches over: the sequence, or the document packed into it; of many lengths the document of a random token."""
    if job.model.source_tokens:  # across to what an encoder made
        return job.model.source_tokens + 0.0 * plan.seq_len
    if (sequences := sequences_of(job, plan)) is not None:
        return sequences.span
    return np.minimum(plan.seq_len, job.document_length) if job.document_length else plan.seq_len


def mean_key_length(job: Job, plan: Plan) -> Any:
    """Keys that a query sees, mean of local and global layers; with an indexer the keys that it picked."""
    return _key_length(job, plan, 1.0)


def slowest_key_length(job: Job, plan: Plan) -> Any:
    """Keys that a query of the busiest context rank sees: the mean where each rank has two chunks, or all tokens.

    Ranks with one piece each wait for the rank with the last piece, whose queries see almost all keys.
    """
    ranks = sequence_ranks(job, plan)
    if job.cp_balance or np.all(np.equal(ranks, 1.0)):
        return mean_key_length(job, plan)
    return _key_length(job, plan, np.maximum(ranks * (attended_span(job, plan) / plan.seq_len), 1.0))  # ranks that share a document


def _key_length(job: Job, plan: Plan, ranks: Any) -> Any:
    """Keys that a query of the last of ``ranks`` equal pieces sees, mean of the model's masks; of many lengths the mean over the tokens."""
    if (sequences := sequences_of(job, plan)) is None:
        return keys_seen(job.model, attended_span(job, plan), ranks)
    mean = sequences.keys(partial(keys_seen, job.model))
    return mean if np.all(np.equal(ranks, 1.0)) else mean * masks.causal_imbalance(ranks, sequences.span, 0.0)
