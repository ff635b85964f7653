"""Bytes of weights, gradients and optimizer states, and the ranks they are spread over."""

from __future__ import annotations

import numpy as np

from ironlaw.law._domain import inside, ratio


def block_sides(m, n, block):
    """Squares of the sides of all blocks of a matrix, the elements of Shampoo's factors: ``sum of (b_m^2 + b_n^2)``.

    A matrix of m rows and n columns is cut into blocks of at most ``block`` rows and columns; every block has two square factors.

    Parameters
        m [1]: rows of the matrix, > 0
        n [1]: columns of the matrix, > 0
        block [1]: largest side of a block; infinite: the matrix is one block, > 0
    Returns [1]: elements of one set of factors
    Source: Gupta et al., Shampoo, ICML 2018, algorithm 1, https://arxiv.org/abs/1802.09568; Shi et al., Distributed Shampoo, 2023,
        section 3 (blocks), https://arxiv.org/abs/2309.06497
    Leaves out: symmetry, which would store half

    >>> float(block_sides(4096.0, 1024.0, np.inf))  # one block: 4096^2 + 1024^2
    17825792.0
    >>> float(block_sides(4096.0, 1024.0, 1024.0))  # four blocks of 1024 by 1024
    8388608.0
    >>> float(block_sides(3.0, 2.0, 2.0))  # blocks of 2 by 2 and 1 by 2: 4 + 4 + 1 + 4
    13.0
    """
    (rows, row_squares), (columns, column_squares) = _cut(1.0 * m, block), _cut(1.0 * n, block)
    return inside(columns * row_squares + rows * column_squares, m > 0, n > 0, block > 0)


def _cut(side, block):
    """Pieces of a side, and the sum of their squares."""
    size = np.minimum(block, side)
    whole = np.floor(ratio(side, size))
    rest = side - whole * size
    return whole + (rest > 0), whole * size**2 + rest**2


def newton_schulz(m, n, iterations):
    """FLOPs of Muon's orthogonalisation of one matrix: ``iterations (4 m^2 n + 2 m^3)``.

    An iteration multiplies the matrix by its transpose, squares the product, and multiplies the polynomial by the matrix.

    Parameters
        m [1]: smaller side of the matrix, >= 0
        n [1]: larger side of the matrix, >= 0
        iterations [1]: Newton-Schulz iterations, 5 in Muon, >= 0
    Factor [FLOP]: 2 for each multiply-add
    Returns [FLOP]: operations
    Source: Jordan et al., Muon, 2024, "Runtime analysis": at most 6 m^2 n an iteration, https://kellerjordan.github.io/posts/muon/
    Leaves out: the norm and the sums of the polynomial, which are not matrix products

    >>> float(newton_schulz(1024, 1024, 1) / 1024**3)  # a square: the most, 6 m^2 n
    6.0
    """
    return inside(1.0 * iterations * (4.0 * m * m * n + 2.0 * m * m * m), m >= 0, n >= 0, iterations >= 0)


def muon_overhead(iterations, hidden_size, tokens_per_step):
    """Muon's matrix products over the FLOPs of a step, at most: ``iterations hidden_size / tokens_per_step``.

    A matrix of m by n costs 6 m n a token, forward and backward, and at most 6 m^2 n an iteration, once a step.

    Parameters
        iterations [1]: Newton-Schulz iterations T, >= 0
        hidden_size [1]: smaller side m of the matrices, >= 0
        tokens_per_step [token]: tokens B of the global batch, > 0
    Factor [token]: tokens
    Returns [1]: share
    Source: Jordan et al., Muon, 2024, "Runtime analysis", https://kellerjordan.github.io/posts/muon/
    Leaves out: attention's products between tokens, which make the share smaller; ranks that repeat the products

    >>> float(muon_overhead(5, 768, 524288))  # NanoGPT speedrun in the post: 0.7 %
    0.00732421875
    >>> float(muon_overhead(5, 16384, 16e6))  # Llama 405B in the post: 0.5 %
    0.00512
    """
    return inside(ratio(1.0 * iterations * hidden_size, 1.0 * tokens_per_step), iterations >= 0, hidden_size >= 0, tokens_per_step > 0)


def low_rank_states(m, n, projection_rank):
    """Elements that Adam on a gradient projected to a low rank keeps for each parameter: ``projection_rank (m + 2 n) / (m n)``.

    The gradient of a matrix of m rows and n columns, m <= n, is projected to r rows: a projector of m by r, and two moments of r by n.

    Parameters
        m [1]: rows of the matrix, its smaller side, > 0
        n [1]: columns of the matrix, > 0
        projection_rank [1]: rank r, >= 0
    Returns [1]: elements for each parameter; Adam has 2
    Source: Zhao et al., GaLore: Memory-Efficient LLM Training by Gradient Low-Rank Projection, ICML 2024, table 1,
        https://arxiv.org/abs/2403.03507
    Leaves out: matrices that are not projected (embeddings, output layer, vectors), which keep Adam's states

    >>> float(low_rank_states(4096, 4096, 1024))  # the rank that the paper uses for LLaMA 7B
    0.75
    """
    held = ratio(1.0 * projection_rank * (m + 2.0 * n), 1.0 * m * n)
    return inside(held, m > 0, n > 0, projection_rank >= 0)


def state(parameters, bytes_per_parameter, shards):
    """Bytes of a state that is spread evenly over ranks: ``parameters bytes_per_parameter / shards``.

    Parameters
        parameters [1]: parameters the group of ranks holds, >= 0
        bytes_per_parameter [B]: bytes of one, >= 0
        shards [1]: ranks that share them, >= 1
    Returns [B]: bytes on each rank
    Source: Rajbhandari et al., ZeRO, SC 2020, section 5, https://arxiv.org/abs/1910.02054
    Leaves out: padding to equal shards, gather buffers

    >>> float(state(13e9, 12, 32))  # worked in the estimation exercises
    4875000000.0
    """
    held = ratio(1.0 * parameters * bytes_per_parameter, 1.0 * shards)
    return inside(held, parameters >= 0, bytes_per_parameter >= 0, shards >= 1)


def training_static(parameters):
    """Static memory of mixed-precision Adam: ``16 N``: weights 2, gradients 2, master 4, m 4, v 4.

    Parameters
        parameters [1]: parameters N, >= 0
    Factor [B]: 16 for each parameter
    Returns [B]: bytes
    Source: Rajbhandari et al., ZeRO, SC 2020, section 3.1, https://arxiv.org/abs/1910.02054
    Leaves out: activations, buffers, fp32 gradients (2 more)

    >>> float(training_static(70e9))  # worked in the estimation exercises
    1120000000000.0
    """
    return inside(16.0 * parameters, parameters >= 0)


def least_accelerators(size, capacity):
    """The fewest accelerators whose memory together holds a size: ``ceil(size / capacity)``.

    Parameters
        size [B]: bytes to hold, >= 0
        capacity [B]: memory of one accelerator, > 0
    Offset [B]: whole accelerators
    Returns [1]: accelerators, with no room for anything else
    Source: count; errata E001-8: 14 of 80 GB for 70B parameters is exactly 14.0, so nothing is left for activations
    Leaves out: activations, buffers, the memory that the driver takes

    >>> float(least_accelerators(16 * 70e9, 80e9))  # worked in the estimation exercises
    14.0
    """
    return inside(np.ceil(ratio(1.0 * size, 1.0 * capacity)), size >= 0, capacity > 0)


def adam(parameters):
    """The two fp32 moments of Adam: ``8 N``.

    Parameters
        parameters [1]: parameters N, >= 0
    Factor [B]: 8 for each parameter
    Returns [B]: bytes
    Source: Kingma and Ba, Adam, ICLR 2015, algorithm 1, https://arxiv.org/abs/1412.6980
    Leaves out: fp32 master weights (4 N)

    >>> float(adam(7e9))  # worked in the training chapter
    56000000000.0
    """
    return inside(8.0 * parameters, parameters >= 0)


def host_traffic(traffic, gradient_bytes, weight_bytes, master_bytes):
    """Bytes a host's memory moves for each parameter it updates: ``traffic + 2 gradient_bytes + master_bytes + 2 weight_bytes``.

    The gradient arrives over the link and is read; the optimizer reads and writes its states; the master weight is read
    once more to be cast, and the cast weight is written and leaves over the link.

    Parameters
        traffic [B]: bytes of its states, master weight included, that a step reads and writes, >= 0
        gradient_bytes [B]: bytes of a gradient as it arrives, >= 0
        weight_bytes [B]: bytes of a weight as it leaves, >= 0
        master_bytes [B]: bytes of the master weight that is cast, 0 where weights are updated as they are, >= 0
    Returns [B]: bytes of one parameter
    Source: counted in DeepSpeed, runtime/zero/stage_1_and_2.py (async_inplace_copy_grad_to_fp32_buffer_from_gpu; fp32
        weights copied to 16-bit ones) and csrc/adam/cpu_adam.cpp, https://github.com/deepspeedai/DeepSpeed, read 2026-11-22
    Leaves out: gradients that are summed on the host over micro-batches, norms of gradients computed there

    >>> float(host_traffic(24.0, 4.0, 2.0, 4.0))  # Adam: 4 + 4 gradient, 24 states, 4 + 2 + 2 weight
    40.0
    """
    moved = traffic + 2.0 * gradient_bytes + master_bytes + 2.0 * weight_bytes
    return inside(moved, traffic >= 0, gradient_bytes >= 0, weight_bytes >= 0, master_bytes >= 0)


def host_update(parameters, accelerators, bytes_per_parameter, bandwidth, bandwidth_fraction):
    """Time of an optimizer in host memory: ``parameters accelerators bytes_per_parameter / (bandwidth_fraction bandwidth)``.

    Parameters
        parameters [1]: parameters whose states one accelerator holds there, >= 0
        accelerators [1]: accelerators that share the host, > 0
        bytes_per_parameter [B]: bytes its memory moves for one, >= 0
        bandwidth [B/s]: bandwidth of the host's memory, > 0
        bandwidth_fraction [1]: what of it the optimizer reaches, > 0
    Returns [s]: time
    Source: Ren et al., ZeRO-Offload, USENIX ATC 2021, section 5.1 (the update is bound by the host), https://arxiv.org/abs/2101.06840
    Leaves out: an update delayed by a step, which hides; caches; memory on the other socket

    >>> float(host_update(1e9, 8, 40, 400e9, 0.2))
    4.0
    """
    moved = 1.0 * parameters * accelerators * bytes_per_parameter
    time = ratio(moved, 1.0 * bandwidth_fraction * bandwidth)
    return inside(time, parameters >= 0, accelerators > 0, bytes_per_parameter >= 0, bandwidth > 0, bandwidth_fraction > 0)


def drive_time(parameters, accelerators, bytes_per_parameter, bandwidth):
    """Time to read and write states on drives: ``2 parameters accelerators bytes_per_parameter / bandwidth``.

    Parameters
        parameters [1]: parameters whose states one accelerator holds there, >= 0
        accelerators [1]: accelerators that share the drives, > 0
        bytes_per_parameter [B]: bytes of the states of one, >= 0
        bandwidth [B/s]: of all drives in one direction, > 0
    Returns [s]: time
    Source: Rajbhandari et al., ZeRO-Infinity, SC 2021, sections 3 and 5 (states are read from NVMe, updated in the host, written back),
        https://arxiv.org/abs/2104.07857
    Leaves out: reading beside writing, gradients on the drives, wear

    >>> float(drive_time(1e9, 16, 12, 24e9))  # 16 billion parameters on a host with 24 GB/s
    16.0
    """
    time = ratio(2.0 * parameters * accelerators * bytes_per_parameter, 1.0 * bandwidth)
    return inside(time, parameters >= 0, accelerators > 0, bytes_per_parameter >= 0, bandwidth > 0)


def without_room(size, room):
    """Bytes of pages that stay in the host: ``max(size - room, 0)``.

    Parameters
        size [B]: bytes of all pages, >= 0
        room [B]: memory of the device that nothing else needs, >= 0
    Returns [B]: bytes
    Source: Dettmers et al., QLoRA, NeurIPS 2023, section 3 (paged optimizers: unified memory, pages go to the host where the device runs
        short), https://arxiv.org/abs/2305.14314
    Leaves out: pages that activations evict during the passes and that come back for the update

    >>> float(without_room(54e9, 8e9))
    46000000000.0
    """
    return inside(np.maximum(1.0 * size - room, 0.0), size >= 0, room >= 0)


def paging_time(size, bandwidth):
    """Time to move pages for one update: ``2 size / bandwidth``, in one after the other: each comes in, and one goes out for it.

    Parameters
        size [B]: bytes of the pages that the device has no room for, >= 0
        bandwidth [B/s]: of the link to the host, in one direction, > 0
    Returns [s]: time
    Source: counted; the driver evicts a changed page before it brings another in (CUDA C++ Programming Guide, unified memory)
    Leaves out: pages that fit and are evicted all the same, since the driver evicts the one that was used longest ago; time of page faults

    >>> float(paging_time(46e9, 23e9))
    4.0
    """
    return inside(ratio(2.0 * size, 1.0 * bandwidth), size >= 0, bandwidth > 0)


def zero_shards(stage_threshold, zero, dp_shard):
    """Ranks that share a state: ``dp_shard`` from the ZeRO stage that shards it on, else 1.

    Parameters
        stage_threshold [1]: first stage that shards it: 1 optimizer states, 2 gradients, 3 weights, >= 0
        zero [1]: the plan's stage, 0 to 3, >= 0
        dp_shard [1]: ranks of the sharding group, >= 1
    Returns [1]: shards
    Source: Rajbhandari et al., ZeRO, SC 2020, section 5, https://arxiv.org/abs/1910.02054
    Leaves out: expert parameters, whose sharding group is smaller

    >>> float(zero_shards(1, 1, 64)), float(zero_shards(3, 1, 64))
    (64.0, 1.0)
    """
    shards = np.where(np.greater_equal(zero, stage_threshold), 1.0 * dp_shard, 1.0)
    return inside(shards, stage_threshold >= 0, zero >= 0, dp_shard >= 1)
