"""Time of communication among n ranks. ``size`` is the whole tensor in bytes; bandwidth is one direction, per rank."""

from __future__ import annotations

import numpy as np

from ironlaw.law._domain import fraction, inside, ratio


def all_reduce_factor(n):
    """Bytes each rank sends in an all-reduce for each byte of the tensor: ``2 (n - 1) / n``.

    Parameters
        n [1]: ranks, >= 1
    Returns [1]: traffic factor
    Source: NVIDIA, nccl-tests, PERFORMANCE.md, "AllReduce", https://github.com/NVIDIA/nccl-tests/blob/master/doc/PERFORMANCE.md
    Leaves out: reduction in the switch (NVLS, SHARP): all_reduce_in_switch_factor

    >>> float(all_reduce_factor(8))  # worked in the training chapter
    1.75
    """
    return inside(ratio(2.0 * (n - 1.0), 1.0 * n), n >= 1)


def one_way_factor(n):
    """Bytes each rank sends in an all-gather, reduce-scatter or all-to-all for each byte of the tensor: ``(n - 1) / n``.

    Parameters
        n [1]: ranks, >= 1
    Returns [1]: traffic factor
    Source: NVIDIA, nccl-tests, PERFORMANCE.md, "AllGather", https://github.com/NVIDIA/nccl-tests/blob/master/doc/PERFORMANCE.md
    Leaves out: multicast in the switch, by which a rank sends its part once but receives as much as before, so that a gather takes as long

    >>> float(one_way_factor(8))
    0.875
    """
    return inside(ratio(n - 1.0, 1.0 * n), n >= 1)


def all_reduce_across_factor(n, domains):
    """Bytes a rail carries in an all-reduce for each byte of its share: ``2 (d - 1) / d`` of d domains up to two, beyond ``2 (n - 1) / n``.

    Between two domains NCCL reduces along a tree: inside a domain first, then one sum each way. A rail carries half of what it does in a
    ring. Two trees over more domains have a domain with a parent and two children, whose rails carry as much as in the ring.

    Parameters
        n [1]: ranks, >= 1
        domains [1]: domains the ranks are in, >= 1
    Where: n >= domains
    Returns [1]: traffic factor
    Source: S. Jeaugey in NCCL issue 946 (on two nodes a tree has half the traffic on the network, and NCCL should use it for large sizes),
        https://github.com/NVIDIA/nccl/issues/946; NVIDIA, NCCL, src/graph/tuning.cc (an all-reduce alone has trees: gathers and scatters
        are rings of all ranks)
    Leaves out: reduction in switches of the fabric (SHARP): all_reduce_in_fabric_factor

    >>> float(all_reduce_across_factor(16, 2)), float(all_reduce_across_factor(32, 4)), float(all_reduce_across_factor(2, 2))
    (1.0, 1.9375, 1.0)
    """
    tree = ratio(2.0 * (domains - 1.0), 1.0 * domains)
    return inside(np.where(np.less_equal(domains, 2.0), tree, ratio(2.0 * (n - 1.0), 1.0 * n)), n >= 1, domains >= 1, n >= domains)


def all_reduce_in_switch_factor(n):
    """Bytes each rank sends in an all-reduce in the switch of its domain, for each byte of the tensor: ``1 + 1 / n``, 0 of one rank.

    Every rank sends the whole tensor once, for the switch to add, and its n-th part of the sum once more, for the switch to send to all.

    Parameters
        n [1]: ranks, >= 1
    Returns [1]: traffic factor
    Source: S. Jeaugey in nccl-tests issue 212 (bandwidth on the wire over algorithm bandwidth: (n + 1) / n; on 8 H100 a peak of about
        480 GB/s counted as a ring, where rings reach 370), https://github.com/NVIDIA/nccl-tests/issues/212
    Leaves out: one fused operation, which would send each byte once; types that the switch does not add (all below 16 bits)

    >>> float(all_reduce_in_switch_factor(8)), round(float(all_reduce_factor(8) / all_reduce_in_switch_factor(8)), 2)
    (1.125, 1.56)
    """
    return inside(np.where(np.greater(n, 1.0), 1.0 + ratio(1.0, 1.0 * n), 0.0), n >= 1)


def all_reduce_in_fabric_factor(domains):
    """Bytes a rail sends for each byte of its share in an all-reduce that switches of the fabric add: ``1``, 0 in one domain.

    Every NIC sends its share up a tree of switches once and receives the sum once.

    Parameters
        domains [1]: domains the ranks are in, >= 1
    Returns [1]: traffic factor
    Source: Graham et al., Scalable Hierarchical Aggregation Protocol (SHARP): A Hardware Architecture for Efficient Data Reduction,
        COMHPC 2016, https://doi.org/10.1109/COMHPC.2016.006
    Leaves out: depth of the tree, a second group that wants the same tree

    >>> float(all_reduce_in_fabric_factor(4)), float(all_reduce_in_fabric_factor(1))
    (1.0, 0.0)
    """
    return inside(np.where(np.greater(domains, 1.0), 1.0, 0.0), domains >= 1)


def ring_all_gather(n, size, bandwidth, latency):
    """Every rank ends with all ``size`` bytes: ``(n - 1) latency + (n - 1) / n size / bandwidth``.

    Parameters
        n [1]: ranks, >= 1
        size [B]: bytes of the gathered tensor, >= 0
        bandwidth [B/s]: bandwidth of a link, one direction, > 0
        latency [s]: time of one hop, >= 0
    Returns [s]: time
    Source: Thakur, Rabenseifner and Gropp, Optimization of Collective Communication Operations in MPICH, IJHPCA 2005, section 4.1,
        https://doi.org/10.1177/1094342005051521
    Leaves out: start-up, protocols that trade bandwidth for latency, contention

    >>> float(ring_all_gather(128, 140e9, 50e9, 0.0))  # half of the all-reduce of the estimation exercises
    2.778125
    """
    time = (n - 1.0) * latency + ratio(ratio(n - 1.0, 1.0 * n) * size, 1.0 * bandwidth)
    return inside(time, n >= 1, size >= 0, bandwidth > 0, latency >= 0)


def ring_reduce_scatter(n, size, bandwidth, latency):
    """Every rank ends with its share of the sum: ``(n - 1) latency + (n - 1) / n size / bandwidth``.

    Parameters
        n [1]: ranks, >= 1
        size [B]: bytes of the reduced tensor before it is scattered, >= 0
        bandwidth [B/s]: bandwidth of a link, one direction, > 0
        latency [s]: time of one hop, >= 0
    Returns [s]: time
    Source: Thakur, Rabenseifner and Gropp, Optimization of Collective Communication Operations in MPICH, IJHPCA 2005, section 4.3,
        https://doi.org/10.1177/1094342005051521
    Leaves out: the additions, start-up, contention

    >>> float(ring_reduce_scatter(128, 140e9, 50e9, 0.0))  # worked in the estimation exercises
    2.778125
    """
    time = (n - 1.0) * latency + ratio(ratio(n - 1.0, 1.0 * n) * size, 1.0 * bandwidth)
    return inside(time, n >= 1, size >= 0, bandwidth > 0, latency >= 0)


def ring_all_reduce(n, size, bandwidth, latency):
    """Every rank ends with the whole sum: ``2 (n - 1) latency + 2 (n - 1) / n size / bandwidth``.

    Parameters
        n [1]: ranks, >= 1
        size [B]: bytes of the tensor, >= 0
        bandwidth [B/s]: bandwidth of a link, one direction, > 0
        latency [s]: time of one hop, >= 0
    Returns [s]: time
    Source: Patarasuk and Yuan, Bandwidth Optimal All-reduce Algorithms, JPDC 2009, section 3,
        https://doi.org/10.1016/j.jpdc.2008.09.002
    Leaves out: trees, reduction in the switch, the additions, start-up, contention

    >>> float(ring_all_reduce(128, 140e9, 50e9, 0.0))  # 70B gradients in bf16; worked in the estimation exercises
    5.55625
    """
    time = 2.0 * (n - 1.0) * latency + ratio(ratio(2.0 * (n - 1.0), 1.0 * n) * size, 1.0 * bandwidth)
    return inside(time, n >= 1, size >= 0, bandwidth > 0, latency >= 0)


def all_to_all(n, size, bandwidth, latency):
    """Every rank sends each other its share of ``size`` bytes: ``(n - 1) latency + (n - 1) / n size / bandwidth``.

    Parameters
        n [1]: ranks, >= 1
        size [B]: bytes one rank holds before (and after), its own share included, >= 0
        bandwidth [B/s]: bandwidth of a rank, one direction, > 0
        latency [s]: time of one message, >= 0
    Returns [s]: time
    Source: Thakur, Rabenseifner and Gropp, Optimization of Collective Communication Operations in MPICH, IJHPCA 2005, section 4.2,
        https://doi.org/10.1177/1094342005051521
    Leaves out: unequal shares (the fullest rank sets the time), contention in the network

    >>> float(all_to_all(8, 64e6, 400e9, 0.0))
    0.00014
    """
    time = (n - 1.0) * latency + ratio(ratio(n - 1.0, 1.0 * n) * size, 1.0 * bandwidth)
    return inside(time, n >= 1, size >= 0, bandwidth > 0, latency >= 0)


def point_to_point(size, bandwidth, latency):
    """One message: ``latency + size / bandwidth``.

    Parameters
        size [B]: bytes of the message, >= 0
        bandwidth [B/s]: bandwidth of the link, one direction, > 0
        latency [s]: time of an empty message, >= 0
    Returns [s]: time
    Source: Hockney, The Communication Challenge for MPP, Parallel Computing 1994, eq. 1, https://doi.org/10.1016/S0167-8191(06)80021-9
    Leaves out: contention, protocols for small messages

    >>> float(point_to_point(28e9, 12.5e9, 0.0))  # worked in the training chapter
    2.24
    """
    time = 1.0 * latency + ratio(1.0 * size, 1.0 * bandwidth)
    return inside(time, size >= 0, bandwidth > 0, latency >= 0)


def mesh_rate(n, domain, rate):
    """Bandwidth a group of ``n`` ranks finds in a full mesh of ``domain``: ``rate (n - 1) / (domain - 1)``.

    Every accelerator has one link to each other; a smaller group leaves the links to the rest idle. A switch has no such loss.

    Parameters
        n [1]: ranks of the group, >= 1
        domain [1]: accelerators of the mesh, > 0
        rate [B/s]: all links of one accelerator together, one direction, > 0
    Where: domain >= n
    Returns [B/s]: usable bandwidth
    Source: AMD, MI300X platform data sheet (seven xGMI links a GPU), https://www.amd.com/en/products/accelerators/instinct/mi300/platform.html
    Leaves out: groups of one, which need no link

    >>> float(mesh_rate(2, 8, 448e9))
    64000000000.0
    """
    return inside(rate * ratio(n - 1.0, domain - 1.0), n >= 1, domain > 1, rate > 0, domain >= n)


def ring_pass(n, size, bandwidth, latency):
    """Blocks of ``size`` bytes go once round a ring, so that every rank sees every other's: ``(n - 1) (latency + size / bandwidth)``.

    What ring attention does with keys and values.

    Parameters
        n [1]: ranks, >= 1
        size [B]: bytes of one rank's block, >= 0
        bandwidth [B/s]: bandwidth of a link, one direction, > 0
        latency [s]: time of one hop, >= 0
    Returns [s]: time
    Source: Liu, Zaharia and Abbeel, Ring Attention with Blockwise Transformers, 2023, section 3, https://arxiv.org/abs/2310.01889
    Leaves out: the computation each hop may hide behind

    >>> float(ring_pass(4, 1e9, 50e9, 0.0))
    0.06
    """
    return inside((n - 1.0) * (latency + ratio(1.0 * size, 1.0 * bandwidth)), n >= 1, size >= 0, bandwidth > 0, latency >= 0)


def measured(n, size, factor, line_rate, bandwidth_fraction, half_size, latency):
    """A collective with measured constants: ``latency + size factor / (bandwidth_fraction line_rate saturation)``.

    ``saturation = sqrt(size) / (sqrt(size) + sqrt(half_size))`` is the share of its final bandwidth that a tensor reaches.

    Exactly 0 where there is nothing to send: one rank, or an empty tensor.

    Parameters
        n [1]: ranks, >= 1
        size [B]: bytes of the tensor, >= 0
        factor [1]: all_reduce_factor or one_way_factor of n, >= 0
        line_rate [B/s]: datasheet bandwidth of a rank, one direction, > 0
        bandwidth_fraction [1]: fraction of it that very large tensors reach; above 1 where the switch reduces, > 0
        half_size [B]: size at which half of that is reached, >= 0
        latency [s]: time of an empty collective, >= 0
    Returns [s]: time
    Source: fitted to nccl-tests sweeps of 8 x A100, H100 and B200 (aiconfigurator systems tables, NVIDIA, 2025,
        https://github.com/ai-dynamo/aiconfigurator); traffic factors of nccl-tests, PERFORMANCE.md
    Leaves out: jumps where the library changes algorithm or protocol, contention with other collectives

    >>> round(1e6 * float(measured(8, 2.0**29, 1.75, 450e9, 512 / 450, 8.2e6, 16e-6)))  # us; measured on 8 x H100: 2,111
    2078
    """
    root, half = np.sqrt(np.maximum(size, 0.0)), np.sqrt(np.maximum(half_size, 0.0))
    share = ratio(root, root + half)
    time = latency + ratio(1.0 * size * factor, 1.0 * bandwidth_fraction * line_rate * share)
    something = np.greater(n, 1.0) & np.greater(size, 0.0)
    return inside(
        np.where(something, time, 0.0), n >= 1, size >= 0, factor >= 0, line_rate > 0, bandwidth_fraction > 0, half_size >= 0, latency >= 0
    )


def two_tier(
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
):
    """A collective inside domains and across them: ``max(inner, outer)``.

    ``inner`` is ``measured(inner_ranks, size, factor, inner_rate, inner_fraction, inner_half_size, inner_latency)``, and
    ``outer`` is ``measured(outer_ranks, size / inner_ranks, outer_factor, outer_rate, outer_fraction, outer_half_size, outer_latency)``.

    NCCL's rings run through every rank once: each accelerator's own link carries the whole traffic, and each of the
    ``inner_ranks`` NIC rails of a domain its share. Both stages run at once, the slower one sets the time. ``factor`` is
    that of all ``inner_ranks outer_ranks`` ranks, ``outer_factor`` that of a rail; in rings they are equal.

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
    Returns [s]: time
    Source: S. Jeaugey, Massively Scale Your Deep Learning Training with NCCL 2.4, NVIDIA, 2019 (rings and rails),
        https://developer.nvidia.com/blog/massively-scale-deep-learning-training-nccl-2-4/
    Leaves out: latency that grows with the number of domains, contention above the rails

    >>> round(float(two_tier(8, 4, 4 * 2.0**30, 2 * 31 / 32, 450e9, 1.0, 0.0, 0.0, 50e9, 1.0, 0.0, 0.0, 2 * 31 / 32)) * 1e3, 1)
    20.8
    """
    inner = measured(inner_ranks, size, factor, inner_rate, inner_fraction, inner_half_size, inner_latency)
    rail = ratio(1.0 * size, 1.0 * inner_ranks)
    outer = measured(outer_ranks, rail, outer_factor, outer_rate, outer_fraction, outer_half_size, outer_latency)
    return np.maximum(inner, outer)


def hierarchical(inner, outer, serial_fraction):
    """A collective over two tiers that overlap in part: ``max(inner, outer) + serial_fraction min(inner, outer)``.

    Parameters
        inner [s]: time of the tier inside the node, >= 0
        outer [s]: time of the tier between nodes, >= 0
        serial_fraction [1]: part of the faster tier that is not hidden, in [0, 1]
    Returns [s]: time
    Source: bounds: max and sum of the tiers; between them as measured by nccl-tests over nodes (Bekman, ML Engineering, network benchmarks,
        https://github.com/stas00/ml-engineering/tree/master/network)
    Leaves out: chunking, rails, oversubscribed spines

    >>> float(hierarchical(16.0, 8.0, 0.25))
    18.0
    """
    time = np.maximum(1.0 * inner, outer) + serial_fraction * np.minimum(1.0 * inner, outer)
    return inside(time, inner >= 0, outer >= 0, fraction(serial_fraction))


def bus_bandwidth(size, time, factor):
    """Bandwidth of the links that a measured collective implies: ``size factor / time``.

    Parameters
        size [B]: bytes of the tensor, >= 0
        time [s]: measured time, > 0
        factor [1]: all_reduce_factor or one_way_factor of the ranks, >= 0
    Returns [B/s]: bus bandwidth, comparable with the line rate
    Source: NVIDIA, nccl-tests, PERFORMANCE.md, "Bus bandwidth", https://github.com/NVIDIA/nccl-tests/blob/master/doc/PERFORMANCE.md
    Leaves out: latency, which small tensors mostly measure

    >>> round(float(bus_bandwidth(22118400, 0.113e-3, 1.0)) / 1e9, 2)  # 2 ranks; worked in the bandwidth-accounting note
    195.74
    """
    return inside(ratio(1.0 * size * factor, 1.0 * time), size >= 0, time > 0, factor >= 0)


def algorithm_bandwidth(size, time):
    """Rate at which a measured collective finishes bytes of the tensor: ``size / time``.

    Parameters
        size [B]: bytes of the tensor, >= 0
        time [s]: measured time, > 0
    Returns [B/s]: algorithm bandwidth, not comparable with the line rate
    Source: NVIDIA, nccl-tests, PERFORMANCE.md, "Algorithm bandwidth", https://github.com/NVIDIA/nccl-tests/blob/master/doc/PERFORMANCE.md
    Leaves out: the number of ranks

    >>> round(float(algorithm_bandwidth(22118400, 0.113e-3)) / 1e9, 2)  # worked in the bandwidth-accounting note
    195.74
    """
    return inside(ratio(1.0 * size, 1.0 * time), size >= 0, time > 0)
