"""Exchanges in which every rank sends something else to every other, over the two tiers of a cluster."""

from __future__ import annotations

import numpy as np

from ironlaw.law._domain import inside, ratio
from ironlaw.law.collectives import measured


def two_tier_all_to_all(
    inner_ranks,
    outer_ranks,
    size,
    inner_rate,
    inner_fraction,
    inner_half_size,
    inner_latency,
    outer_rate,
    outer_fraction,
    outer_half_size,
    outer_latency,
):
    """Each rank hands an equal part of ``size`` to every other: ``max(measured(inner share), measured(outer share))``.

    Of a rank's bytes, ``(inner_ranks - 1) / n`` stay in its domain and ``(n - inner_ranks) / n`` leave it by its own NICs,
    with ``n = inner_ranks outer_ranks``; both go at once.

    Parameters
        inner_ranks [1]: ranks of the group in one scale-up domain, >= 1
        outer_ranks [1]: domains the group spans, >= 1
        size [B]: bytes each rank sends, its own part included, >= 0
        inner_rate [B/s]: line rate inside a domain, one direction, per accelerator, > 0
        inner_fraction [1]: share of that rate reached by large messages, > 0
        inner_half_size [B]: size that reaches half of it, >= 0
        inner_latency [s]: start-up inside a domain, >= 0
        outer_rate [B/s]: line rate of an accelerator's NICs, one direction, > 0
        outer_fraction [1]: share of that rate reached by large messages, > 0
        outer_half_size [B]: size per rail that reaches half of it, >= 0
        outer_latency [s]: start-up across domains, >= 0
    Returns [s]: time
    Source: NVIDIA, NCCL, src/enqueue.cc and documentation of ncclAlltoAll: a send and a receive for each pair of ranks,
        https://github.com/NVIDIA/nccl
    Leaves out: incast

    >>> round(float(two_tier_all_to_all(8, 2, 16e6, 450e9, 1.0, 0.0, 0.0, 50e9, 1.0, 0.0, 0.0)) * 1e6)
    160
    """
    n = 1.0 * inner_ranks * outer_ranks
    stays, leaves = ratio(inner_ranks - 1.0, 1.0 * n), ratio(1.0 * n - inner_ranks, 1.0 * n)
    inner = measured(inner_ranks, size, stays, inner_rate, inner_fraction, inner_half_size, inner_latency)
    outer = measured(outer_ranks, size, leaves, outer_rate, outer_fraction, outer_half_size, outer_latency)
    return np.maximum(inner, outer)


def two_tier_forwarded(
    inner_ranks,
    outer_ranks,
    size,
    inner_rate,
    inner_fraction,
    inner_half_size,
    inner_latency,
    outer_rate,
    outer_fraction,
    outer_half_size,
    outer_latency,
    distinct,
    distinct_ranks,
):
    """Rows sent once to a domain and once to a rank in it: ``max(measured(distinct_ranks inner share), measured(distinct outer share))``.

    A row leaves once for each domain it must reach, to the rank there that stands where its sender does; that rank hands it on, once
    to each other rank that needs it. Every rank hands on as much as it starts: inside a domain ``(inner_ranks - 1) / inner_ranks`` of
    all rows that reach different ranks, wherever they come from. A combine goes the same ways back, summed on them. Both tiers
    work at once.

    Parameters
        inner_ranks [1]: ranks of the group in one scale-up domain, >= 1
        outer_ranks [1]: domains the group spans, >= 1
        size [B]: bytes of all copies of a rank's rows, its own part included, >= 0
        inner_rate [B/s]: line rate inside a domain, one direction, per accelerator, > 0
        inner_fraction [1]: share of that rate reached by large messages, > 0
        inner_half_size [B]: size that reaches half of it, >= 0
        inner_latency [s]: start-up inside a domain, >= 0
        outer_rate [B/s]: line rate of an accelerator's NICs, one direction, > 0
        outer_fraction [1]: share of that rate reached by large messages, > 0
        outer_half_size [B]: size per rail that reaches half of it, >= 0
        outer_latency [s]: start-up across domains, >= 0
        distinct [1]: of the copies, the share that go to different domains, >= 0
        distinct_ranks [1]: of the copies, the share that go to different ranks, >= 0
    Returns [s]: time
    Source: DeepSeek-AI, DeepEP, deep_ep/buffer.py (is_token_in_rank: sent to a rank or not; RDMA between GPUs of one index, NVLink
        inside a node), https://github.com/deepseek-ai/DeepEP, read 2026-11-22; DeepSeek-V3 Technical Report, section 3.2.2
    Leaves out: incast; the indices and weights that go along

    >>> wires = (450e9, 1.0, 0.0, 0.0, 50e9, 1.0, 0.0, 0.0)
    >>> round(float(two_tier_forwarded(8, 2, 16e6, *wires, 1.0, 1.0)) * 1e6), round(14e6 / 450e9 * 1e6), round(8e6 / 50e9 * 1e6)
    (160, 31, 160)
    """
    inside_share, leaves = ratio(inner_ranks - 1.0, 1.0 * inner_ranks), ratio(outer_ranks - 1.0, 1.0 * outer_ranks)
    inner = measured(inner_ranks, 1.0 * size * distinct_ranks, inside_share, inner_rate, inner_fraction, inner_half_size, inner_latency)
    outer = measured(outer_ranks, 1.0 * size * distinct, leaves, outer_rate, outer_fraction, outer_half_size, outer_latency)
    return inside(np.maximum(inner, outer), size >= 0, distinct >= 0, distinct_ranks >= 0)
