"""Mixtures of experts: how many rows an expert's GEMM sees, how they vary, and what tiles make of them."""

from __future__ import annotations

import numpy as np

from ironlaw.law import _normal
from ironlaw.law._domain import fraction, inside, ratio


def routed_rows(tokens, num_experts_per_tok, tp, etp, imbalance):
    """Rows the experts of one rank compute: ``tokens / tp num_experts_per_tok etp imbalance``.

    Each of the ``tp`` ranks routes its share of the tokens; every token goes to ``num_experts_per_tok`` experts; ranks that
    share an expert's width (``etp``) compute each other's rows too. Spread evenly, a rank receives what it sends.

    Parameters
        tokens [token]: tokens of a micro-batch on a tensor-parallel group, >= 0
        num_experts_per_tok [1]: experts a token visits on average, below 1 where some are zero experts that compute nothing, > 0
        tp [1]: tensor parallel ranks, >= 1
        etp [1]: tensor parallel ranks inside an expert, >= 1
        imbalance [1]: rows of the busiest rank over the mean, >= 1
    Returns [token]: rows
    Source: Shazeer et al., Outrageously Large Neural Networks, ICLR 2017, section 3.1, https://arxiv.org/abs/1701.06538
    Leaves out: how imbalance grows with ep and falls with tokens, which ``routing_deviation`` and ``slowest_of`` say

    >>> float(routed_rows(4096, 8, 1, 1, 1.0))
    32768.0
    """
    rows = ratio(1.0 * tokens * num_experts_per_tok * etp * imbalance, 1.0 * tp)
    return inside(rows, tokens >= 0, num_experts_per_tok > 0, tp >= 1, etp >= 1, imbalance >= 1)


def distinct_share(domains, num_experts_per_tok, n_group, topk_group):
    """Of a row's copies, the share that reaches different domains: ``domains (1 - E[(1 - share of a domain)^k]) / k``.

    The expected number of domains that k = num_experts_per_tok experts occupy, drawn evenly over ``topk_group`` groups, which are
    drawn evenly from ``n_group``. Without a limit (topk_group = n_group) a domain's share is 1 / domains. Else experts stand in order, so
    a domain of n_group / domains groups has j of the chosen ones with the hypergeometric probability, and then the share
    j / topk_group; where a group spans domains / n_group domains, each of its domains has a part of its 1 / topk_group.

    Parameters
        domains [1]: places the experts are spread over: scale-up domains, or ranks, >= 1
        num_experts_per_tok [1]: experts a token visits on average, below 1 where some are zero experts that compute nothing, > 0
        n_group [1]: groups the experts are split into, >= 1
        topk_group [1]: groups a token's experts lie in at most, >= 1
    Where: n_group >= topk_group
    Returns [1]: share, in (0, 1]
    Source: Feller, An Introduction to Probability Theory, vol. 1, 3rd ed., 1968, sections II.6 (hypergeometric) and IV.2 (occupancy);
        DeepSeek-V3 Technical Report, sections 2.1.2 (node-limited routing) and 3.2.2 (one copy a node over InfiniBand),
        https://arxiv.org/abs/2412.19437; DeepSeek-V2, section 2.2.2 (device-limited routing), https://arxiv.org/abs/2405.04434
    Leaves out: that no expert is drawn twice; routers that favour some groups; groups that domains cut unevenly, and more than
        MOST_GROUPS of them over fewer domains, both taken as no limit

    >>> round(float(distinct_share(8, 8, 1, 1)), 4), float(distinct_share(1, 1, 1, 1))
    (0.6564, 1.0)
    >>> float(distinct_share(8, 2 / 3, 1, 1))
    1.0
    >>> round(float(distinct_share(8, 8, 8, 4)) * 8, 4), 4 * (1 - 0.75**8)  # DeepSeek-V3, a group a node: at most 4
    (3.5995, 3.59954833984375)
    """
    drawn = np.maximum(1.0 * num_experts_per_tok, 1.0)  # a token that visits one expert or none has its copies in one place
    chosen, spread = ratio(1.0 * topk_group, 1.0 * n_group), np.maximum(ratio(1.0 * domains, 1.0 * n_group), 1.0)
    spans = np.greater_equal(domains, n_group)  # a group fills whole domains, or a domain whole groups
    limited, places = _limited(domains, n_group, topk_group), np.where(spans, topk_group * spread, 1.0 * domains)
    empty = np.power(np.clip(1.0 - ratio(1.0, places), 0.0, 1.0), drawn)
    reached = np.where(spans, chosen, 1.0) * (1.0 - empty)
    if np.any(limited):
        reached = np.where(limited, _groups_reached(domains, drawn, n_group, topk_group, limited), reached)
    share = ratio(1.0 * domains * reached, drawn)
    return inside(share, domains >= 1, num_experts_per_tok > 0, n_group >= 1, topk_group >= 1, n_group >= topk_group)


MOST_GROUPS = 64  # more are no router's
_LOG_FACTORIAL = np.append(0.0, np.cumsum(np.log(np.arange(1.0, MOST_GROUPS + 1.0))))


def _limited(domains, n_group, topk_group):
    """True where each domain holds some whole groups of which a token's experts need not all be open."""
    whole = np.logical_and(np.equal(np.floor(n_group), n_group), np.equal(np.floor(topk_group), topk_group))
    groups = ratio(1.0 * n_group, 1.0 * domains)
    kept = np.logical_and(np.less(topk_group, n_group), np.less_equal(n_group, MOST_GROUPS))
    kept = np.logical_and(kept, np.logical_and(np.greater_equal(topk_group, 1), np.greater_equal(domains, 1)))
    return np.logical_and(np.logical_and(whole, kept), np.logical_and(np.greater(groups, 1), np.equal(np.floor(groups), groups)))


def _groups_reached(domains, drawn, n_group, topk_group, limited):
    """Probability that a domain of several groups is reached: over j, its groups among the chosen, P(j) (1 - (1 - j / topk_group)^k)."""
    total, chosen = np.where(limited, n_group, 2), np.where(limited, topk_group, 1)
    held = np.where(limited, ratio(1.0 * n_group, 1.0 * domains), 1.0)
    reached = 0.0
    for j in range(1, MOST_GROUPS):
        if not np.any(np.minimum(held, chosen) >= j):
            break
        ways = _ways(held, j) + _ways(total - held, chosen - j) - _ways(total, chosen)
        reached = reached + np.exp(ways) * (1.0 - np.power(np.clip(1.0 - j / chosen, 0.0, 1.0), drawn))
    return reached


def _ways(count, taken):
    """Logarithm of the ways to take ``taken`` of ``count``; of none -inf."""
    n, k = np.asarray(count, dtype=np.int64), np.asarray(taken, dtype=np.int64)
    some = np.logical_and(k >= 0, k <= n)
    n, k = np.where(some, n, 0), np.where(some, k, 0)
    return np.where(some, _LOG_FACTORIAL[n] - _LOG_FACTORIAL[k] - _LOG_FACTORIAL[n - k], -np.inf)


def padded_rows(rows, groups, tile):
    """Rows a grouped GEMM computes when each group fills whole tiles: ``groups ceil(rows / groups / tile) tile``.

    Parameters
        rows [token]: rows in all, >= 0
        groups [1]: experts they are spread over evenly, > 0
        tile [token]: rows of a tile, > 0
    Returns [token]: rows computed
    Offset [token]: a tile is a step
    Source: NVIDIA, Matrix Multiplication Background User's Guide, "Tile Quantization",
        https://docs.nvidia.com/deeplearning/performance/dl-performance-matrix-multiplication/index.html
    Leaves out: kernels that pick smaller tiles for small groups

    >>> float(padded_rows(1000, 8, 128)), float(padded_rows(1100, 8, 128))
    (1024.0, 2048.0)
    """
    per_tile = ratio(ratio(1.0 * rows, 1.0 * groups), 1.0 * tile)
    return inside(groups * np.ceil(per_tile) * tile, rows >= 0, groups > 0, tile > 0)


def straddling_rows(rows, groups, tile):
    """Rows a grouped GEMM computes when tiles do not end with a group: ``(ceil(rows / tile) + groups - 1) tile``.

    A tile that holds the last rows of one group and the first of the next is computed for both, and each result is masked.

    Parameters
        rows [token]: rows in all, >= 0
        groups [1]: experts they are spread over, > 0
        tile [token]: rows of a tile, > 0
    Returns [token]: rows computed
    Offset [token]: a tile is a step, and every group but the first starts inside one
    Source: JAX, jax/experimental/pallas/ops/tpu/megablox/gmm.py, make_group_metadata (the largest number of tiles),
        https://github.com/jax-ml/jax
    Leaves out: groups that happen to start a tile (one in ``tile`` does); groups without rows

    >>> float(straddling_rows(1024, 2, 512)), float(straddling_rows(1024, 1, 512))
    (1536.0, 1024.0)
    """
    tiles = np.ceil(ratio(1.0 * rows, 1.0 * tile)) + groups - 1.0
    return inside(np.where(rows > 0, tiles * tile, 0.0), rows >= 0, groups > 0, tile > 0)


def rows_moved(tokens, rows, copies):
    """Rows of the hidden state that cross HBM on the way to the experts and back: ``2 tokens + copies rows``.

    Each token is read once and its sum written once. A routed row is written where its expert reads it and read for the sum
    (copies 2); sorting what came from many ranks by expert, and back, reads and writes it twice more (copies 6).

    Parameters
        tokens [token]: tokens the rank routes, or rows it holds before they are copied apart, >= 0
        rows [token]: rows its experts compute, >= 0
        copies [1]: times a routed row is read or written, >= 0
    Factor [1]: 2 for each token, one read and one write
    Returns [token]: rows read and written
    Source: Megatron Core, core/transformer/moe/token_dispatcher.py and moe_utils.py (permute, sort_chunks_by_idxs, unpermute),
        https://github.com/NVIDIA/Megatron-LM; fused as Transformer Engine, pytorch/permutation.py
    Leaves out: the maps of rows to places (counted with the routing); probabilities; rows padded for narrow formats

    >>> float(rows_moved(1024, 8192, 6))
    51200.0
    """
    return inside(2.0 * tokens + 1.0 * copies * rows, tokens >= 0, rows >= 0, copies >= 0)


def routing_deviation(rows, num_experts, num_experts_per_tok):
    """Deviation of the rows of one place where tokens choose at random: ``sqrt(rows (num_experts - k) / (num_experts - 1))``.

    A token visits k = num_experts_per_tok different experts. The rows of n places are then like n independent normal numbers with this
    deviation of which the mean is taken out, because all rows together are given: the largest is as far above the mean, and the
    deviation of one place alone is ``sqrt(1 - 1 / n)`` of this.

    Parameters
        rows [token]: mean rows of the place: an expert, or a rank of experts, >= 0
        num_experts [1]: experts that a token chooses from, >= 1
        num_experts_per_tok [1]: experts a token visits on average, below 1 where some are zero experts that compute nothing, > 0
    Where: num_experts >= num_experts_per_tok
    Returns [token]: deviation
    Offset [token]: a deviation grows as the root of the rows
    Source: Feller, An Introduction to Probability Theory, vol. 1, 3rd ed., 1968, sections II.6 and IX.5 (variance of the hypergeometric
        distribution)
    Leaves out: tokens of one text that choose alike, which make the deviation larger

    >>> float(routing_deviation(400, 2, 1)), float(routing_deviation(400, 8, 8))
    (20.0, 0.0)
    """
    others = np.where(num_experts > 1, num_experts - 1.0, 1.0)
    share = ratio(np.maximum(1.0 * num_experts - num_experts_per_tok, 0.0), others)
    deviation = np.sqrt(np.maximum(1.0 * rows, 0.0) * share)
    return inside(deviation, rows >= 0, num_experts >= 1, num_experts_per_tok > 0, num_experts >= num_experts_per_tok)


def overflow_rows(rows, deviation, capacity_rows):
    """Rows above the capacity of an expert, expected: ``deviation (phi(z) + z Phi(z))`` with ``z = (rows - capacity_rows) / deviation``.

    The rows are normally distributed; without deviation the overflow is what the mean has above the capacity.

    Parameters
        rows [token]: mean rows of the expert, >= 0
        deviation [token]: standard deviation of its rows, >= 0
        capacity_rows [token]: rows it computes; what is above is dropped, >= 0
    Returns [token]: rows dropped
    Source: Fedus, Zoph and Shazeer, Switch Transformers, JMLR 2022, section 2.2 (expert capacity), https://arxiv.org/abs/2101.03961;
        the mean of a censored normal distribution
    Leaves out: tokens that a router sends to their next choice; rows so few that their distribution is skewed

    >>> float(overflow_rows(120, 0, 100)), round(float(overflow_rows(100, 10, 100)), 4), round(10 / (2 * 3.14159265) ** 0.5, 4)
    (20.0, 3.9894, 3.9894)
    """
    over = 1.0 * rows - capacity_rows
    spread = np.where(deviation > 0, deviation, 1.0)
    z = over / spread
    normal = spread * (_normal.density(z) + z * _normal.below(z))
    return inside(np.maximum(np.where(deviation > 0, normal, over), 0.0), rows >= 0, deviation >= 0, capacity_rows >= 0)


def slowest_of(groups, quantile):
    """Standard deviations by which the slowest of groups is above their mean: ``z`` with ``Phi(z)^groups = quantile``.

    The times of the groups are independent, normal and alike. The slowest is below this with the probability ``quantile``.

    Parameters
        groups [1]: groups that wait for one another, >= 1
        quantile [1]: probability; one before the mean counts as the mean, and 1 as 12 deviations, in [0, 1]
    Returns [1]: standard deviations above the mean
    Source: David and Nagaraja, Order Statistics, 3rd ed., 2003, section 2.1
    Leaves out: groups that are slow together

    >>> round(float(slowest_of(1, 0.95)), 3), round(float(slowest_of(64, 0.5)), 3), float(slowest_of(1, 0.5))
    (1.645, 2.298, 0.0)
    """
    known = np.where(np.logical_and(quantile > 0, quantile < 1), quantile, 0.5)
    above = -np.expm1(ratio(np.log(known), np.maximum(1.0 * groups, 1.0)))
    z = np.where(quantile < 1, np.maximum(_normal.point_with_above(above), 0.0), _normal.FARTHEST)
    return inside(np.where(quantile > 0, z, 0.0), groups >= 1, fraction(quantile))
