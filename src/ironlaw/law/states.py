"""Bytes of weights, gradients and optimizer states, and the ranks they are spread over."""

from __future__ import annotations

import numpy as np

from ironlaw.frozen import Frozen
from ironlaw.law._domain import inside, ratio


class OptimizerStates(Frozen):
    """What an optimizer keeps, moves and computes for each parameter, in bytes, beside 2-byte weights and gradients.

    state_bytes: moments; master_bytes: fp32 copy of the weights; traffic_bytes: read and written in one fused step,
    with the 2-byte gradient in and the 2-byte weight out; flop: additions, multiplications, divisions and roots of the update rule, with
    what is the same for all parameters computed once; source: where the counts come from.
    """

    state_bytes: float
    master_bytes: float
    traffic_bytes: float
    flop: float
    source: str


OPTIMIZERS = {
    "sgd": OptimizerStates(
        0.0,
        4.0,
        12.0,
        2.0,
        "Micikevicius et al., Mixed Precision Training, ICLR 2018, section 3.1, https://arxiv.org/abs/1710.03740: "
        "fp32 master; traffic 2 gradient + 8 master + 2 weight; FLOP of w - lr g",
    ),
    "momentum": OptimizerStates(
        4.0,
        4.0,
        20.0,
        4.0,
        "Sutskever et al., ICML 2013, eq. 1 (one velocity), https://proceedings.mlr.press/v28/sutskever13.html; master as sgd; "
        "traffic 2 + 8 master + 8 velocity + 2; FLOP of b v + g and w - lr v",
    ),
    "rmsprop": OptimizerStates(
        4.0,
        4.0,
        20.0,
        9.0,
        "torch.optim.RMSprop without momentum (one mean of squares), "
        "https://docs.pytorch.org/docs/stable/generated/torch.optim.RMSprop.html; master as sgd; traffic as momentum; FLOP of "
        "a v + (1 - a) g g (4), root, + eps, lr g, division, subtraction (5)",
    ),
    "lion": OptimizerStates(
        4.0,
        4.0,
        20.0,
        10.0,
        "Chen et al., Symbolic Discovery of Optimization Algorithms, NeurIPS 2023, algorithm 2 (one momentum), "
        "https://arxiv.org/abs/2302.06675; master as sgd; traffic as momentum; FLOP of b1 m + (1 - b1) g (3), its sign (1), decay as "
        "a factor of w, lr and subtraction (3), b2 m + (1 - b2) g (3)",
    ),
    "adamw": OptimizerStates(
        8.0,
        4.0,
        28.0,
        14.0,
        "Rajbhandari et al., ZeRO, SC 2020, section 3.1 (K = 12), https://arxiv.org/abs/1910.02054; traffic 2 + 8 master + 16 m and v + "
        "2; FLOP of Loshchilov and Hutter, ICLR 2019, algorithm 2, https://arxiv.org/abs/1711.05101: m (3), v (4), root and its "
        "correction (2), + eps, division, lr, subtraction (4), decay as a factor of w (1)",
    ),
    "adamw-bf16": OptimizerStates(
        4.0,
        0.0,
        14.0,
        14.0,
        "torch.optim.AdamW on bf16 parameters keeps both moments in the parameters' type, "
        "https://docs.pytorch.org/docs/stable/generated/torch.optim.AdamW.html; traffic 2 + 4 weight + 8 m and v; FLOP as adamw",
    ),
    "adam8bit": OptimizerStates(
        2.0,
        4.0,
        16.0,
        18.0,
        "Dettmers et al., 8-bit Optimizers, ICLR 2022, section 2, https://arxiv.org/abs/2110.02861; without the scale of each block "
        "of 2,048 (0.004 B); traffic 2 + 8 master + 4 m and v + 2; FLOP as adamw and a scale for each moment in and out (4), without the "
        "search of the code",
    ),
    "adafactor": OptimizerStates(
        0.0,
        4.0,
        14.0,
        9.0,
        "Shazeer and Stern, Adafactor, ICML 2018, algorithm 4, https://arxiv.org/abs/1804.04235: no momentum, row and column sums of the "
        "second moment only (4 (r + c) bytes a matrix, taken as 0); traffic 2 x 2 gradient (statistics, update) + 8 master + 2; FLOP of "
        "g g + eps and its two sums (4), product of row and column, root, division (3), lr, subtraction (2), without clipping",
    ),
    "muon": OptimizerStates(
        4.0,
        4.0,
        20.0,
        4.0,
        "Jordan et al., Muon, 2024, https://kellerjordan.github.io/posts/muon/: one momentum; traffic and FLOP as momentum, without the "
        "Newton-Schulz matrix products; embeddings, head and vectors usually stay with adamw",
    ),
}


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
