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
    """Each rank hands an equal part of its bytes to every other: ``max(inner, outer)``.

    Of a rank's bytes a part stays in its domain and another leaves it by its own NICs: ``stays = (inner_ranks - 1) / n`` and
    ``leaves = (n - inner_ranks) / n``, with ``n = inner_ranks outer_ranks``. Both go at once:
    ``inner = measured(inner_ranks, size, stays, inner_rate, inner_fraction, inner_half_size, inner_latency)``,
    ``outer = measured(outer_ranks, size, leaves, outer_rate, outer_fraction, outer_half_size, outer_latency)``.

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
    """Rows sent once to a domain and once to a rank in it: ``max(inner, outer)``.

    A row leaves once for each domain it must reach, to the rank there that stands where its sender does; that rank hands it on, once
    to each other rank that needs it. Every rank hands on as much as it starts: inside a domain ``(inner_ranks - 1) / inner_ranks`` of
    all rows that reach different ranks, wherever they come from. A combine goes the same ways back, summed on them. Both tiers
    work at once: ``inside = (inner_ranks - 1) / inner_ranks``, ``leaves = (outer_ranks - 1) / outer_ranks``,
    ``inner = measured(inner_ranks, size distinct_ranks, inside, inner_rate, inner_fraction, inner_half_size, inner_latency)``,
    ``outer = measured(outer_ranks, size distinct, leaves, outer_rate, outer_fraction, outer_half_size, outer_latency)``.

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


def deepep_buffers(hidden_size, inner_ranks, outer_ranks, channels, slots, outer_slots):
    """Queues a rank keeps for DeepEP: ``channels (inner_ranks slots token + 2 outer_ranks outer_slots (token + 16 B)) + 1 MiB``.

    Inside one node the first part is all. A token's slot holds its 2-byte numbers, 8 bytes that say where it comes from, and room
    for 128 indices (8 bytes), weights and scales (4 bytes each): ``2 h + 8 + 2048`` bytes. Queues between nodes send and receive.

    Parameters
        hidden_size [1]: width h of a row, > 0
        inner_ranks [1]: ranks of the group in a node, at most 8 in this library, >= 1
        outer_ranks [1]: nodes the group spans, >= 1
        channels [1]: channels, half the multiprocessors it runs on, > 0
        slots [1]: tokens a queue inside a node holds, > 0
        outer_slots [1]: tokens a queue between nodes holds, > 0
    Returns [B]: bytes of one rank
    Factor [B]: bytes of numbers, indices and scales
    Source: DeepSeek-AI, DeepEP, csrc/config.hpp (get_nvl_buffer_size_hint, get_rdma_buffer_size_hint),
        https://github.com/deepseek-ai/DeepEP, read 2026-11-22
    Leaves out: counters of the queues (some KiB), the granularity of NVSHMEM's heap, buffers of the low-latency kernels

    >>> round(float(deepep_buffers(7168, 8, 8, 10, 288, 128)) / 2.0**20)
    682
    """
    token = 2.0 * hidden_size + 8.0 + 128.0 * (8.0 + 4.0 + 4.0)
    inner = 1.0 * channels * inner_ranks * slots * token
    outer = np.where(np.greater(outer_ranks, 1), 1.0 * channels * outer_ranks * outer_slots * 2.0 * (token + 16.0) + 2.0**20, 0.0)
    return inside(inner + outer, hidden_size > 0, inner_ranks >= 1, outer_ranks >= 1, channels > 0, slots > 0, outer_slots > 0)


def hybridep_buffers(tokens, hidden_size, num_experts, inner_ranks, outer_ranks):
    """Buffers a rank keeps for HybridEP: ``t (n row + 2 (d - 1) (row - scales) + (d - 1) row + own row where d > 1)``.

    They hold the worst case, every token of the group on one rank: n = inner_ranks outer_ranks times the t tokens of a rank, a row
    being 2 bytes a number, 4 a probability of the experts of a domain and 4 a scale of 128 numbers: ``2 h + 4 E / d + h / 32``.
    Between d domains a rank keeps its own rows with all E probabilities, those of the d - 1 ranks that stand as it does, and twice
    the latter, without scales, for combine. Dispatch and combine share the first.

    Parameters
        tokens [token]: tokens t of a rank, >= 0
        hidden_size [1]: width h of a row, > 0
        num_experts [1]: experts E of a layer, > 0
        inner_ranks [1]: ranks of the group in one scale-up domain, >= 1
        outer_ranks [1]: domains d the group spans, >= 1
    Returns [B]: bytes of one rank
    Factor [B/token]: bytes of numbers, probabilities and scales
    Source: DeepSeek-AI, DeepEP, branch hybrid-ep, csrc/hybrid_ep/buffer/intranode.cu and internode.cu (allocate_dispatch_buffers,
        allocate_combine_buffers; use_shared_buffer on), https://github.com/deepseek-ai/DeepEP, read 2026-11-22
    Leaves out: flags and tables of the kernels; rows in eight bits, for which Megatron Core allocates none

    >>> round(float(hybridep_buffers(4096, 7168, 256, 8, 1)) / 2.0**20), 4096 * 8 * (2 * 7168 + 4 * 256 + 7168 / 32) / 2**20
    (487, 487.0)
    """
    narrow = 2.0 * hidden_size + 4.0 * ratio(1.0 * num_experts, 1.0 * outer_ranks)
    scales, others = hidden_size / 32.0, outer_ranks - 1.0
    own = np.where(np.greater(outer_ranks, 1), 2.0 * hidden_size + 4.0 * num_experts + scales, 0.0)
    rows = 1.0 * inner_ranks * outer_ranks * (narrow + scales) + own + others * (narrow + scales) + 2.0 * others * narrow
    return inside(tokens * rows, tokens >= 0, hidden_size > 0, num_experts > 0, inner_ranks >= 1, outer_ranks >= 1)
