"""Mixtures of experts: how many rows an expert's GEMM sees, and what tiles make of them."""

from __future__ import annotations

import numpy as np

from ironlaw.law._domain import inside, ratio


def routed_rows(tokens, num_experts_per_tok, tp, etp, imbalance):
    """Rows the experts of one rank compute: ``tokens / tp num_experts_per_tok etp imbalance``.

    Each of the ``tp`` ranks routes its share of the tokens; every token goes to ``num_experts_per_tok`` experts; ranks that
    share an expert's width (``etp``) compute each other's rows too. Spread evenly, a rank receives what it sends.

    Parameters
        tokens [token]: tokens of a micro-batch on a tensor-parallel group, >= 0
        num_experts_per_tok [1]: experts a token visits, >= 1
        tp [1]: tensor parallel ranks, >= 1
        etp [1]: tensor parallel ranks inside an expert, >= 1
        imbalance [1]: rows of the busiest rank over the mean, >= 1
    Returns [token]: rows
    Source: Shazeer et al., Outrageously Large Neural Networks, ICLR 2017, section 3.1, https://arxiv.org/abs/1701.06538
    Leaves out: how imbalance grows with ep and falls with tokens

    >>> float(routed_rows(4096, 8, 1, 1, 1.0))
    32768.0
    """
    rows = ratio(1.0 * tokens * num_experts_per_tok * etp * imbalance, 1.0 * tp)
    return inside(rows, tokens >= 0, num_experts_per_tok >= 1, tp >= 1, etp >= 1, imbalance >= 1)


def distinct_share(domains, num_experts_per_tok):
    """Of a row's copies, the share that reaches different domains: ``domains (1 - (1 - 1/domains)^k) / k``.

    The expected number of occupied domains when ``k = num_experts_per_tok`` experts are drawn evenly over ``domains``.

    Parameters
        domains [1]: scale-up domains the experts are spread over, >= 1
        num_experts_per_tok [1]: experts a token visits, >= 1
    Returns [1]: share, in (0, 1]
    Source: Feller, An Introduction to Probability Theory, vol. 1, 3rd ed., 1968, section IV.2 (occupancy);
        DeepSeek-V3 Technical Report, section 3.2.2 (one copy a node over InfiniBand), https://arxiv.org/abs/2412.19437
    Leaves out: routing that is limited to some domains, which lowers it further

    >>> round(float(distinct_share(8, 8)), 4), float(distinct_share(1, 1))
    (0.6564, 1.0)
    """
    drawn = np.where(num_experts_per_tok >= 1, 1.0 * num_experts_per_tok, 1.0)
    empty = np.power(np.clip(1.0 - ratio(1.0, 1.0 * domains), 0.0, 1.0), drawn)
    share = ratio(1.0 * domains * (1.0 - empty), 1.0 * num_experts_per_tok)
    return inside(share, domains >= 1, num_experts_per_tok >= 1)


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
