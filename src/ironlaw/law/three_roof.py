"""The three-roof model of a token: operations, HBM bytes and network bytes against three peak rates. A first-order model.

It knows no kernels, no schedule and no tensor or pipeline parallelism. ``ironlaw.estimate`` answers the same questions in full;
these laws stand beside it, to be read, and to be compared with what others compute with them.
"""

from __future__ import annotations

import numpy as np

from ironlaw.law._domain import inside, ratio


def flop_per_token(parameters, kappa, gamma):
    """Operations of one token: ``gamma kappa N``.

    Parameters
        parameters [1]: parameters N, the active ones of a mixture, >= 0
        kappa [FLOP/token]: operations for each parameter: 6 to train, 2 for forward alone, >= 0
        gamma [1]: recomputation, 1 for none, 1.1 to 1.4 usual, >= 1
    Returns [FLOP/token]: operations
    Source: the cost-of-bandwidth note (docs/documents/000-cost-of-bandwidth.md), section 2
    Leaves out: attention scores

    >>> float(flop_per_token(70e9, 6, 1.2))  # worked in the cost-of-bandwidth note
    503999999999.99994
    """
    return inside(1.0 * gamma * kappa * parameters, parameters >= 0, kappa >= 0, gamma >= 1)


def traffic_per_token(parameters, optimizer_traffic, tokens_per_step, activation_passes, num_hidden_layers, hidden_size, bytes_per_element):
    """HBM bytes of one token: ``alpha N / B + c L h e``: the optimizer's share of the batch, and activations.

    Parameters
        parameters [1]: parameters N, >= 0
        optimizer_traffic [B]: bytes alpha an optimizer step moves for each parameter, >= 0
        tokens_per_step [token]: tokens B of the global batch, > 0
        activation_passes [1/token]: hidden states c a token moves in each layer, >= 0
        num_hidden_layers [1]: layers L, >= 0
        hidden_size [1]: width h, >= 0
        bytes_per_element [B]: bytes e of an activation, >= 0
    Returns [B/token]: bytes moved
    Source: the cost-of-bandwidth note (docs/documents/000-cost-of-bandwidth.md), section 2
    Leaves out: weights read for every micro-batch, three passes of them (errata E000-3)

    >>> float(traffic_per_token(70e9, 16, 512000, 5, 80, 8192, 2))  # worked in the cost-of-bandwidth note
    8741100.0
    """
    optimizer = ratio(1.0 * optimizer_traffic * parameters, 1.0 * tokens_per_step)
    moved = optimizer + 1.0 * activation_passes * num_hidden_layers * hidden_size * bytes_per_element
    return inside(
        moved,
        parameters >= 0,
        optimizer_traffic >= 0,
        tokens_per_step > 0,
        activation_passes >= 0,
        num_hidden_layers >= 0,
        hidden_size >= 0,
        bytes_per_element >= 0,
    )


def network_per_token(parameters, bytes_per_element, tokens_per_step, n):
    """Network bytes a rank sends for each token it trains on: ``2 (n - 1) N e / B``: a ring all-reduce over its own tokens.

    Parameters
        parameters [1]: parameters N, >= 0
        bytes_per_element [B]: bytes e of a gradient, >= 0
        tokens_per_step [token]: tokens B of the global batch, of which a rank has B / n, > 0
        n [1]: data-parallel ranks, >= 1
    Returns [B/token]: bytes sent
    Source: ring all-reduce of 2 (n - 1) / n N e (Patarasuk and Yuan, 2009, https://doi.org/10.1016/j.jpdc.2008.09.002)
        over B / n tokens; errata E000-1
    Leaves out: tensor and pipeline parallel traffic, overlap

    >>> float(network_per_token(70e9, 2, 512000, 8))  # worked in the cost-of-bandwidth note
    3828125.0
    """
    sent = ratio(2.0 * (n - 1.0) * parameters * bytes_per_element, 1.0 * tokens_per_step)
    return inside(sent, parameters >= 0, bytes_per_element >= 0, tokens_per_step > 0, n >= 1)


def network_as_printed(parameters, bytes_per_element, tokens_per_step):
    """Network bytes of a token as the cost-of-bandwidth note prints them: ``2 N e / B``, whatever the number of ranks.

    Parameters
        parameters [1]: parameters N, >= 0
        bytes_per_element [B]: bytes e of a gradient, >= 0
        tokens_per_step [token]: tokens B of the global batch, > 0
    Returns [B/token]: bytes sent
    Source: the cost-of-bandwidth note (docs/documents/000-cost-of-bandwidth.md), section 4
    Leaves out: that a rank trains on its own part of the batch only: see network_per_token

    >>> float(network_as_printed(70e9, 2, 512000))  # worked in the cost-of-bandwidth note
    546875.0
    """
    sent = ratio(2.0 * parameters * bytes_per_element, 1.0 * tokens_per_step)
    return inside(sent, parameters >= 0, bytes_per_element >= 0, tokens_per_step > 0)


def compute_roof(peak, flop_per_token):
    """Tokens a second that arithmetic allows: ``peak / flop_per_token``.

    Parameters
        peak [FLOP/s]: peak rate, >= 0
        flop_per_token [FLOP/token]: operations of a token, > 0
    Returns [token/s]: tokens a second and accelerator
    Source: the cost-of-bandwidth note (docs/documents/000-cost-of-bandwidth.md), section 3
    Leaves out: efficiency

    >>> float(compute_roof(1000e12, 504e9))  # worked in the cost-of-bandwidth note
    1984.126984126984
    """
    return inside(ratio(1.0 * peak, 1.0 * flop_per_token), peak >= 0, flop_per_token > 0)


def hbm_roof(bandwidth, traffic_per_token):
    """Tokens a second that HBM allows: ``bandwidth / traffic_per_token``.

    Parameters
        bandwidth [B/s]: HBM bandwidth, >= 0
        traffic_per_token [B/token]: HBM bytes of a token, > 0
    Returns [token/s]: tokens a second and accelerator
    Source: the cost-of-bandwidth note (docs/documents/000-cost-of-bandwidth.md), section 3
    Leaves out: efficiency

    >>> float(hbm_roof(4.8e12, 8741100.0))  # worked in the cost-of-bandwidth note
    549129.9722002952
    """
    return inside(ratio(1.0 * bandwidth, 1.0 * traffic_per_token), bandwidth >= 0, traffic_per_token > 0)


def network_roof(line_rate, network_per_token):
    """Tokens a second that the network allows: ``line_rate / network_per_token``.

    Parameters
        line_rate [B/s]: bandwidth of an accelerator's NICs, one direction, >= 0
        network_per_token [B/token]: bytes sent for a token, > 0
    Returns [token/s]: tokens a second and accelerator
    Source: the cost-of-bandwidth note (docs/documents/000-cost-of-bandwidth.md), section 4
    Leaves out: latency, efficiency

    >>> round(float(network_roof(25e9, 3828125.0)), 9)  # worked in the cost-of-bandwidth note
    6530.612244898
    """
    return inside(ratio(1.0 * line_rate, 1.0 * network_per_token), line_rate >= 0, network_per_token > 0)


def reached(roof, efficiency):
    """What a resource gives of its roof, where each has a share of its own: ``u roof``.

    Parameters
        roof [token/s]: tokens a second that one resource allows, > 0
        efficiency [1]: share of it that is reached, >= 0
    Returns [token/s]: tokens a second
    Source: errata E000-7: one share for all three hides which of them falls short
    Leaves out: why

    >>> float(reached(2000.0, 0.6))
    1200.0
    """
    return inside(1.0 * efficiency * roof, roof > 0, efficiency >= 0)


def rate(compute_roof, hbm_roof, network_roof, efficiency):
    """Tokens a second of an accelerator whose three resources work at once: ``u min(compute, hbm, network)``.

    Parameters
        compute_roof [token/s]: tokens a second that arithmetic allows, > 0
        hbm_roof [token/s]: tokens a second that HBM allows, > 0
        network_roof [token/s]: tokens a second that the network allows, infinite where nothing is sent, > 0
        efficiency [1]: utilisation u of whichever binds, >= 0
    Returns [token/s]: tokens a second and accelerator
    Source: the cost-of-bandwidth note (docs/documents/000-cost-of-bandwidth.md), section 4
    Leaves out: time in which the three do not overlap: see rate_serial

    >>> round(float(rate(900e12 / 504e9, 383246.96, 45714.3, 0.75)), 9)  # worked in the cost-of-bandwidth note
    1339.285714286
    """
    least = np.minimum(np.minimum(1.0 * compute_roof, 1.0 * hbm_roof), 1.0 * network_roof)
    return inside(efficiency * least, compute_roof > 0, hbm_roof > 0, network_roof > 0, efficiency >= 0)


def rate_serial(compute_roof, hbm_roof, network_roof, efficiency):
    """The same where nothing overlaps: ``u / (1 / compute + 1 / hbm + 1 / network)``.

    Parameters
        compute_roof [token/s]: tokens a second that arithmetic allows, > 0
        hbm_roof [token/s]: tokens a second that HBM allows, > 0
        network_roof [token/s]: tokens a second that the network allows, infinite where nothing is sent, > 0
        efficiency [1]: utilisation u, >= 0
    Returns [token/s]: tokens a second and accelerator, at least a third of what full overlap gives
    Source: sum of the three times; errata E000-7
    Leaves out: any overlap

    >>> float(rate_serial(2.0, 4.0, 4.0, 1.0))
    1.0
    """
    seconds = ratio(1.0, 1.0 * compute_roof) + ratio(1.0, 1.0 * hbm_roof) + ratio(1.0, 1.0 * network_roof)
    return inside(ratio(1.0 * efficiency, seconds), compute_roof > 0, hbm_roof > 0, network_roof > 0, efficiency >= 0)


def gpus_for(tokens_per_second, tokens_per_second_per_gpu):
    """Accelerators for a rate: ``max(1, ceil(tokens_per_second / tokens_per_second_per_gpu))``.

    Parameters
        tokens_per_second [token/s]: the rate to reach, >= 0
        tokens_per_second_per_gpu [token/s]: tokens a second of one, > 0
    Offset [token, s]: whole accelerators, at least one
    Returns [1]: accelerators
    Source: the cost-of-bandwidth note (docs/documents/000-cost-of-bandwidth.md), section 5
    Leaves out: a rate of one that falls with their number

    >>> float(gpus_for(200e3, 1339.2857142857144))  # worked in the cost-of-bandwidth note
    150.0
    """
    count = np.maximum(np.ceil(ratio(1.0 * tokens_per_second, 1.0 * tokens_per_second_per_gpu)), 1.0)
    return inside(count, tokens_per_second >= 0, tokens_per_second_per_gpu > 0)


def cluster_traffic(tokens_per_second, traffic_per_token):
    """HBM bandwidth a rate uses in all: ``tokens_per_second traffic_per_token``.

    Parameters
        tokens_per_second [token/s]: tokens of all accelerators, >= 0
        traffic_per_token [B/token]: HBM bytes of a token, >= 0
    Returns [B/s]: bandwidth of the cluster
    Source: the cost-of-bandwidth note (docs/documents/000-cost-of-bandwidth.md), section 5
    Leaves out: what the accelerators have, which is more

    >>> float(cluster_traffic(200e3, 8741100.0)) / 1e12  # worked in the cost-of-bandwidth note
    1.74822
    """
    return inside(1.0 * tokens_per_second * traffic_per_token, tokens_per_second >= 0, traffic_per_token >= 0)


def data_parallel_cap(line_rate, tokens_per_step, parameters, bytes_per_element, gpus_per_replica, efficiency):
    """Tokens a second that no number of data-parallel replicas exceeds by much: ``u k W B / (2 N e)``.

    Parameters
        line_rate [B/s]: bandwidth W of an accelerator's NICs, one direction, >= 0
        tokens_per_step [token]: tokens B of the global batch, >= 0
        parameters [1]: parameters N, > 0
        bytes_per_element [B]: bytes e of a gradient, > 0
        gpus_per_replica [1]: accelerators k that share a replica, >= 1
        efficiency [1]: utilisation u, >= 0
    Returns [token/s]: tokens a second of the cluster; n replicas reach n / (n - 1) of it
    Source: limit of the ring all-reduce for many ranks; errata E000-1
    Leaves out: overlap, tensor and pipeline parallel traffic

    >>> round(float(data_parallel_cap(25e9, 512000, 70e9, 2, 1, 0.75)), 4)  # worked in the cost-of-bandwidth note
    34285.7143
    """
    least = ratio(1.0 * efficiency * gpus_per_replica * line_rate * tokens_per_step, 2.0 * parameters * bytes_per_element)
    return inside(
        least, line_rate >= 0, tokens_per_step >= 0, parameters > 0, bytes_per_element > 0, gpus_per_replica >= 1, efficiency >= 0
    )


def batch_for_rate(tokens_per_second, line_rate, parameters, bytes_per_element, gpus_per_replica, efficiency):
    """The batch whose cap is a rate: ``R 2 N e / (u k W)``.

    Parameters
        tokens_per_second [token/s]: the rate R of the cluster, >= 0
        line_rate [B/s]: bandwidth W of an accelerator's NICs, one direction, > 0
        parameters [1]: parameters N, >= 0
        bytes_per_element [B]: bytes e of a gradient, >= 0
        gpus_per_replica [1]: accelerators k that share a replica, >= 1
        efficiency [1]: utilisation u, > 0
    Returns [token]: tokens of the global batch
    Source: data_parallel_cap solved for B; errata E000-1
    Leaves out: that a batch beyond the critical one trains worse

    >>> round(float(batch_for_rate(200e3, 25e9, 70e9, 2, 1, 0.75)), 2)  # worked in the cost-of-bandwidth note
    2986666.67
    """
    tokens = ratio(2.0 * tokens_per_second * parameters * bytes_per_element, 1.0 * efficiency * gpus_per_replica * line_rate)
    return inside(
        tokens, tokens_per_second >= 0, line_rate > 0, parameters >= 0, bytes_per_element >= 0, gpus_per_replica >= 1, efficiency > 0
    )


def memory_crossover(parameters, optimizer_traffic, ridge_traffic, activation_traffic):
    """The batch below which HBM binds before arithmetic: ``alpha N / (ridge_traffic - activation_traffic)``.

    Parameters
        parameters [1]: parameters N, >= 0
        optimizer_traffic [B]: bytes alpha an optimizer step moves for each parameter, >= 0
        ridge_traffic [B/token]: HBM bytes that pass while a token is computed: operations over machine balance, >= 0
        activation_traffic [B/token]: bytes of activations a token moves, >= 0
    Where: ridge_traffic > activation_traffic
    Returns [token]: tokens of the global batch; nan where HBM binds at every batch
    Source: intensity set equal to the machine balance, solved for the batch; errata E000-5
    Leaves out: the network

    >>> round(float(memory_crossover(70e9, 16, 504e9 * 3.35 / 900, 6553600)), 2)  # H100 of the cost-of-bandwidth note
    599.11
    """
    spare = 1.0 * ridge_traffic - activation_traffic
    tokens = ratio(1.0 * parameters * optimizer_traffic, spare)
    return inside(tokens, parameters >= 0, optimizer_traffic >= 0, ridge_traffic >= 0, activation_traffic >= 0, spare > 0)


def network_crossover(parameters, bytes_per_element, n, peak, flop_per_token, line_rate):
    """The batch below which the network binds before arithmetic: ``2 (n - 1) N e C / (F W)``.

    Parameters
        parameters [1]: parameters N, >= 0
        bytes_per_element [B]: bytes e of a gradient, >= 0
        n [1]: data-parallel ranks; 2 is what the cost-of-bandwidth note prints for any number, >= 1
        peak [FLOP/s]: peak rate C, >= 0
        flop_per_token [FLOP/token]: operations F of a token, > 0
        line_rate [B/s]: bandwidth W of an accelerator's NICs, one direction, > 0
    Returns [token]: tokens of the global batch
    Source: the two roofs set equal, solved for the batch
    Leaves out: HBM, overlap

    >>> round(float(network_crossover(70e9, 2, 2, 900e12, 504e9, 25e9)), 6)  # between the labels of the cost-of-bandwidth note
    20000.0
    """
    tokens = ratio(2.0 * (n - 1.0) * parameters * bytes_per_element * peak, 1.0 * flop_per_token * line_rate)
    return inside(tokens, parameters >= 0, bytes_per_element >= 0, n >= 1, peak >= 0, flop_per_token > 0, line_rate > 0)
