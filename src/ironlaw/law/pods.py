"""Communication on three tiers: scale-up domains, pods in which every NIC has its whole rate, and fewer links between pods.

A pod is what one layer of switches joins without loss: the nodes of a leaf, of the leaves of all rails, or of a pod of a larger cluster.
The links that leave a pod carry ``1 / oversubscription`` of the rate of its NICs. All groups of a job communicate at once, so that each
accelerator has its share of these links.
"""

from __future__ import annotations

import numpy as np

from ironlaw.law._domain import fraction, inside, ratio
from ironlaw.law.collectives import measured, two_tier
from ironlaw.law.exchanges import two_tier_all_to_all, two_tier_forwarded


def three_tier(
    inner_ranks,
    outer_ranks,
    size,
    factor,
    inner_rate,
    inner_fraction,
    inner_half_size,
    inner_latency,
    outer_rate,
    outer_fraction,
    outer_half_size,
    outer_latency,
    outer_factor,
    pod_ranks,
    oversubscription,
):
    """A collective inside domains, across them and across pods: ``max(two_tier, measured(outer, size / pod_ranks, outer_rate / R))``.

    A ring through all ranks leaves a pod once for each of its rails, so the ``pod_ranks`` accelerators of a pod together send what one ring
    carries. A pod with R or more domains of the group loses nothing to an oversubscription of R.

    Parameters
        inner_ranks [1]: ranks of the group in one scale-up domain, >= 1
        outer_ranks [1]: domains the group spans, >= 1
        size [B]: bytes of the whole tensor, >= 0
        factor [1]: traffic factor of the operation over all ranks, >= 0
        inner_rate [B/s]: line rate inside a domain, one direction, per accelerator, > 0
        inner_fraction [1]: share of that rate reached by large messages, > 0
        inner_half_size [B]: size that reaches half of it, >= 0
        inner_latency [s]: start-up inside a domain, >= 0
        outer_rate [B/s]: line rate of an accelerator's NICs, one direction, > 0
        outer_fraction [1]: share of that rate reached by large messages, > 0
        outer_half_size [B]: size per rail that reaches half of it, >= 0
        outer_latency [s]: start-up across domains, >= 0
        outer_factor [1]: traffic factor of the operation on a rail, >= 0
        pod_ranks [1]: ranks of the group in one pod, >= 1
        oversubscription [1]: rate of a pod's NICs over that of the links that leave it, >= 1
    Where: pod_ranks >= inner_ranks
    Returns [s]: time
    Source: Llama Team, The Llama 3 Herd of Models, 2024, section 3.3.1 (pods of 3,072 accelerators, 1:7 between them),
        https://arxiv.org/abs/2407.21783; rings as in two_tier
    Leaves out: collisions of flows above a pod, rings that leave a pod more often than they must

    >>> wires = (8, 64, 8e9, 2.0, 450e9, 1.0, 0.0, 0.0, 50e9, 1.0, 0.0, 0.0, 2.0)  # 8 pods of 64 ranks, 8 domains in each
    >>> [round(float(three_tier(*wires, 64, r)) * 1e3, 1) for r in (1, 7, 8, 16)]  # eight domains hide 7:1; 16:1 doubles the time
    [40.0, 40.0, 40.0, 80.0]
    """
    within = two_tier(
        inner_ranks, outer_ranks, size, factor, inner_rate, inner_fraction, inner_half_size, inner_latency,
        outer_rate, outer_fraction, outer_half_size, outer_latency, outer_factor,
    )  # fmt: skip
    pods, share = ratio(1.0 * inner_ranks * outer_ranks, 1.0 * pod_ranks), ratio(1.0 * size, 1.0 * pod_ranks)
    uplink = ratio(1.0 * outer_rate, 1.0 * oversubscription)
    above = measured(np.maximum(pods, 1.0), share, outer_factor, uplink, outer_fraction, outer_half_size, outer_latency)
    return inside(np.maximum(within, above), pod_ranks >= inner_ranks, oversubscription >= 1)


def three_tier_all_to_all(
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
    pod_ranks,
    oversubscription,
):
    """Each rank hands an equal part to every other, over three tiers: ``max(two_tier_all_to_all, measured(size (n - pod_ranks) / n))``.

    The last time is on the links that leave a pod, at ``outer_rate / oversubscription`` for each accelerator. Rows for another rail change
    the rail inside their domain, so that leaves of single rails need no links to each other (PXN).

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
        pod_ranks [1]: ranks of the group in one pod, >= 1
        oversubscription [1]: rate of a pod's NICs over that of the links that leave it, >= 1
    Where: pod_ranks >= inner_ranks
    Returns [s]: time
    Source: NVIDIA, Doubling all2all Performance with NVIDIA Collective Communication Library 2.12, 2022 (PXN: rails and NVLink),
        https://developer.nvidia.com/blog/doubling-all2all-performance-with-nvidia-collective-communication-library-2-12/
    Leaves out: incast, collisions of flows above a pod, rows between rails without PXN

    >>> wires = (8, 16, 16e6, 450e9, 1.0, 0.0, 0.0, 50e9, 1.0, 0.0, 0.0)  # two pods of 64: half of the rows leave their pod
    >>> [round(float(three_tier_all_to_all(*wires, 64, r)) * 1e6) for r in (1, 4)]
    [300, 640]
    """
    within = two_tier_all_to_all(
        inner_ranks, outer_ranks, size, inner_rate, inner_fraction, inner_half_size, inner_latency,
        outer_rate, outer_fraction, outer_half_size, outer_latency,
    )  # fmt: skip
    n = 1.0 * inner_ranks * outer_ranks
    pods, leaves = ratio(n, 1.0 * pod_ranks), np.maximum(ratio(n - pod_ranks, n), 0.0)
    uplink = ratio(1.0 * outer_rate, 1.0 * oversubscription)
    above = measured(np.maximum(pods, 1.0), size, leaves, uplink, outer_fraction, outer_half_size, outer_latency)
    return inside(np.maximum(within, above), pod_ranks >= inner_ranks, oversubscription >= 1)


def three_tier_forwarded(
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
    pod_ranks,
    oversubscription,
):
    """Rows sent once to a domain and once to a rank in it, over three tiers: ``max(two_tier_forwarded, measured(distinct rows above))``.

    Of the rows sent to different domains, ``(n - pod_ranks) / n`` leave their pod, at ``outer_rate / oversubscription``.

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
        pod_ranks [1]: ranks of the group in one pod, >= 1
        oversubscription [1]: rate of a pod's NICs over that of the links that leave it, >= 1
    Where: pod_ranks >= inner_ranks
    Returns [s]: time
    Source: as two_tier_forwarded (DeepSeek-AI, DeepEP, https://github.com/deepseek-ai/DeepEP) and three_tier
    Leaves out: incast, collisions of flows above a pod, limits on the pods that a token may reach

    >>> wires = (8, 16, 16e6, 450e9, 1.0, 0.0, 0.0, 50e9, 1.0, 0.0, 0.0, 0.5, 1.0)
    >>> [round(float(three_tier_forwarded(*wires, 64, r)) * 1e6) for r in (1, 4)]
    [150, 320]
    """
    within = two_tier_forwarded(
        inner_ranks, outer_ranks, size, inner_rate, inner_fraction, inner_half_size, inner_latency,
        outer_rate, outer_fraction, outer_half_size, outer_latency, distinct, distinct_ranks,
    )  # fmt: skip
    n = 1.0 * inner_ranks * outer_ranks
    pods, leaves = ratio(n, 1.0 * pod_ranks), np.maximum(ratio(n - pod_ranks, n), 0.0)
    uplink = ratio(1.0 * outer_rate, 1.0 * oversubscription)
    above = measured(np.maximum(pods, 1.0), 1.0 * size * distinct, leaves, uplink, outer_fraction, outer_half_size, outer_latency)
    return inside(np.maximum(within, above), pod_ranks >= inner_ranks, oversubscription >= 1)


def hand_over_rate(rate, pod_ranks, oversubscription):
    """Rate at which every rank sends to the next of its group when some of them leave their pod: ``rate min(1, pod_ranks / R)``.

    Of the ``pod_ranks`` ranks of a group in a pod, one has its neighbour in another pod. The accelerators of a pod share the links that
    leave it, so that one in ``pod_ranks`` has ``pod_ranks / R`` of the rate of its NIC.

    Parameters
        rate [B/s]: rate of an accelerator's NICs, one direction, > 0
        pod_ranks [1]: ranks of the group in one pod, >= 1
        oversubscription [1]: R, rate of a pod's NICs over that of the links that leave it, >= 1
    Returns [B/s]: rate of the slowest hand-over
    Source: as three_tier: the Llama 3 Herd of Models, 2024, section 3.3.1, https://arxiv.org/abs/2407.21783
    Leaves out: collisions of flows above a pod

    >>> [float(hand_over_rate(50e9, stages, 7.0)) / 50e9 for stages in (1, 3.5, 16)]
    [0.14285714285714285, 0.5, 1.0]
    """
    share = np.minimum(1.0, ratio(1.0 * pod_ranks, 1.0 * oversubscription))
    return inside(rate * share, rate > 0, pod_ranks >= 1, oversubscription >= 1)


def shared_rate(rate, network_share):
    """Rate that other jobs leave this one: ``rate network_share``.

    Parameters
        rate [B/s]: rate of an accelerator's NICs, one direction, > 0
        network_share [1]: of that rate, what this job has, in [0, 1]
    Returns [B/s]: rate
    Source: arithmetic; the share is a statement of the user, no measurement
    Leaves out: bursts of other jobs, and the tail that they give to single steps

    >>> float(shared_rate(50e9, 0.5))
    25000000000.0
    """
    return inside(rate * (1.0 * network_share), rate > 0, fraction(network_share))
