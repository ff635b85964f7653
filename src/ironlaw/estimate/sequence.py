"""How one sequence is split over context ranks: who holds which tokens and heads in attention, and what a mask leaves uneven.

Of ``cp`` ranks, ``head_ranks`` trade heads for tokens, and what is left, ``sequence_ranks``, hold different tokens in attention:

    ring, all-gather    1 and cp        all-to-all    cp and 1        all-to-all+ring    an inner group, and cp over it
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ironlaw.law import flops
from ironlaw.plan import Job, Plan


def key_heads(job: Job) -> float:
    """Key heads of a layer's attention: those of latent attention are all of its heads."""
    model = job.model
    return float(model.num_attention_heads if model.kv_lora_rank else model.num_key_value_heads)


def head_ranks(job: Job, plan: Plan) -> Any:
    """Context ranks that trade heads for tokens: none round a ring, all with all-to-all, else an inner group.

    Where nobody says how large, the inner group is what divides the key heads of a tensor-parallel rank, the context ranks, and
    what a scale-up domain has left: its all-to-all then stays on the fast links, and the ring alone leaves them.
    """
    if job.cp_method == "all-to-all":
        return plan.cp
    if job.cp_method != "all-to-all+ring":
        return 1.0
    known = plan.wires.get("head ranks")
    if known is None or known[0] is not job:
        known = plan.wires["head ranks"] = (job, _inner(job, plan))
    return known[1]


def _inner(job: Job, plan: Plan) -> Any:
    if job.cp_inner:
        return np.minimum(job.cp_inner, plan.cp)
    heads, room = (np.maximum(np.floor(n / plan.tp), 1.0).astype(np.int64) for n in (key_heads(job), job.cp_domain))
    return np.gcd(np.gcd(heads, room), plan.cp.astype(np.int64)).astype(np.float64)


def sequence_ranks(job: Job, plan: Plan) -> Any:
    """Context ranks that hold different tokens inside attention."""
    if job.cp_method == "all-to-all":
        return 1.0
    return plan.cp / head_ranks(job, plan) if job.cp_method == "all-to-all+ring" else plan.cp


def attended_span(job: Job, plan: Plan) -> Any:
    """Tokens attention reaches over: the sequence, or the document packed into it."""
    return np.minimum(plan.seq_len, job.document_length) if job.document_length else plan.seq_len


def mean_key_length(job: Job, plan: Plan) -> Any:
    """Keys a causal query sees, averaged over local and global layers."""
    model, span = job.model, attended_span(job, plan)
    share = model.sliding_window_layers / model.num_hidden_layers
    everywhere = flops.attended_length(span, 0.0)
    if share == 0.0:
        return everywhere
    return share * flops.attended_length(span, model.sliding_window) + (1.0 - share) * everywhere


def slowest_key_length(job: Job, plan: Plan) -> Any:
    """Keys a query of the busiest context rank sees: the mean where each rank has two chunks, or where all hold all tokens.

    Ranks that hold one piece each wait for the one with the last piece, whose queries see almost all keys.
    """
    ranks = sequence_ranks(job, plan)
    if job.cp_balance or np.all(np.equal(ranks, 1.0)):
        return mean_key_length(job, plan)
    model, span = job.model, attended_span(job, plan)
    ranks = np.maximum(ranks * (span / plan.seq_len), 1.0)  # those that share a document
    share = model.sliding_window_layers / model.num_hidden_layers
    everywhere = flops.attended_length(span, 0.0) * flops.causal_imbalance(ranks, span, 0.0)
    if share == 0.0:
        return everywhere
    local = flops.attended_length(span, model.sliding_window) * flops.causal_imbalance(ranks, span, model.sliding_window)
    return share * local + (1.0 - share) * everywhere
