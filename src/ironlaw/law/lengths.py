"""Documents of many lengths: pieces of a cut stream, padding, context ranks that a length needs, and waiting for the slowest rank."""

from __future__ import annotations

import numpy as np

from ironlaw.law._domain import fraction, inside, ratio


def piece_length(document, seq_len):
    """Mean piece that a token is in where a stream is cut every s tokens: ``l - l l / (3 s) up to l = s, then s - s s / (3 l)``.

    Two tokens of a document at distance d are in one piece with probability max(0, 1 - d / s), because the cuts fall anywhere. The mean
    of the squares of the pieces is that probability summed over all pairs, and here it is divided by the length l.

    Parameters
        document [token]: length l of the document, > 0
        seq_len [token]: length s of a sequence, > 0
    Returns [token]: mean length of the piece of a random token
    Source: derived here; pairs of positions in one piece of a stationary stream of cuts
    Leaves out: the token that marks the end of a document

    >>> float(piece_length(300.0, 1000.0)), float(piece_length(3000.0, 1000.0))  # whole in most sequences; cut in nearly all
    (270.0, 888.8888888888889)
    """
    shorter, longer = 1.0 * document, 1.0 * seq_len
    within = shorter - ratio(shorter * shorter, 3.0 * longer)
    across = longer - ratio(longer * longer, 3.0 * shorter)
    return inside(np.where(shorter <= longer, within, across), document > 0, seq_len > 0)


def padding_share(real_tokens, computed_tokens):
    """Share of the tokens computed that belong to no document: ``1 - real_tokens / computed_tokens``.

    Parameters
        real_tokens [token]: tokens of documents, >= 0
        computed_tokens [token]: tokens of sequences with their padding, > 0
    Where: computed_tokens >= real_tokens
    Returns [1]: padding
    Source: Krell et al., Efficient Sequence Packing without Cross-contamination, 2021, section 2, https://arxiv.org/abs/2107.02027
    Leaves out: tokens that are computed but not trained on, such as prompts
    Offset [1]: the share is a difference from 1

    >>> float(padding_share(256.0, 512.0))
    0.5
    """
    share = 1.0 - ratio(1.0 * real_tokens, 1.0 * computed_tokens)
    return inside(share, real_tokens >= 0, computed_tokens > 0, computed_tokens >= real_tokens)


def context_ranks(document, rank_tokens, cp):
    """Context ranks that a document needs: ``2^ceil(log2(document / rank_tokens)), at least 1 and at most cp``.

    Parameters
        document [token]: length of the longest document of a micro-batch, > 0
        rank_tokens [token]: tokens of a micro-batch that one rank holds, > 0
        cp [1]: context ranks that the longest sequence needs, >= 1
    Returns [1]: context ranks
    Source: NVIDIA, Megatron-LM, examples/dynamic_context_parallel/README.md (2048 tokens a rank: one, two or four ranks for up to 2048,
        4096 and 8192 tokens), https://github.com/NVIDIA/Megatron-LM
    Leaves out: groups that are no power of two

    >>> [float(context_ranks(length, 2048.0, 4.0)) for length in (1000.0, 2048.0, 2049.0, 8192.0)]
    [1.0, 1.0, 2.0, 4.0]
    """
    shares = np.maximum(ratio(1.0 * document, 1.0 * rank_tokens), 1.0)
    needed = 2.0 ** np.ceil(np.log2(shares))
    return inside(np.minimum(needed, cp), document > 0, rank_tokens > 0, cp >= 1)


def slowest_over_mean(share, slowest_tokens, slowest_attention):
    """Time of the slowest over the mean, of which a share a is attention: ``1 + (1 - a) (t - 1) + a (q - 1)``.

    t and q are the expected slowest over the mean of the work that grows with the tokens, and of that of attention. Exact where one of
    them does not vary, as t in packs of equal length, or where both are largest in the same micro-batch; else an upper bound.

    Parameters
        share [1]: share a of the time that attention takes, in [0, 1]
        slowest_tokens [1]: largest over mean t of the work by tokens, >= 1
        slowest_attention [1]: largest over mean q of the work of attention, >= 1
    Returns [1]: slowest over mean
    Source: the largest of sums is at most the sum of the largest
    Leaves out: kernels that the host launches late, whose time does not grow with the work
    Offset [1]: the ratio is a difference from 1

    >>> float(slowest_over_mean(0.25, 1.0, 1.4))
    1.1
    """
    ratio_of_times = 1.0 + (1.0 - share) * (slowest_tokens - 1.0) + share * (slowest_attention - 1.0)
    return inside(ratio_of_times, fraction(share), slowest_tokens >= 1, slowest_attention >= 1)


def wait_for_slowest(time, share, slowest_tokens, slowest_attention):
    """Time that the mean rank waits for the slowest: ``time ((1 - share) (slowest_tokens - 1) + share (slowest_attention - 1))``.

    Parameters
        time [s]: mean time of a rank, >= 0
        share [1]: share of it that attention takes, in [0, 1]
        slowest_tokens [1]: largest over mean of the work by tokens, >= 1
        slowest_attention [1]: largest over mean of the work of attention, >= 1
    Returns [s]: waiting
    Source: a collective of all ranks ends after its last rank has come; ``slowest_over_mean``
    Leaves out: noise of kernels and links, which ``overlap.scale_loss`` has

    >>> float(wait_for_slowest(2.0, 0.5, 1.0, 1.5))
    0.5
    """
    return inside(1.0 * time * (slowest_over_mean(share, slowest_tokens, slowest_attention) - 1.0), time >= 0)


def fill_of_unequal(bubble, share, largest_tokens, largest_attention):
    """What unequal micro-batches add to a bubble: ``bubble ((1 - share) (largest_tokens - 1) + share (largest_attention - 1))``.

    A micro-batch takes the same time on every stage, so the makespan is the sum of the micro-batches and (stages - 1) times the longest:
    a proportionate flow shop. The bubble of equal micro-batches is (stages - 1) times their mean.

    Parameters
        bubble [s]: bubble of equal micro-batches, >= 0
        share [1]: share of a micro-batch that attention takes, in [0, 1]
        largest_tokens [1]: work by tokens of a rank's largest micro-batch over the mean, >= 1
        largest_attention [1]: work of attention of a rank's largest micro-batch over the mean, >= 1
    Returns [s]: further bubble
    Source: Pinedo, Scheduling, 5th edition, 2016, section 6.1 (proportionate permutation flow shop), https://doi.org/10.1007/978-3-319-26580-3
    Leaves out: schedules that fill the bubble with weight gradients of the longest micro-batch

    >>> float(fill_of_unequal(0.25, 0.5, 1.0, 2.0))
    0.125
    """
    return inside(1.0 * bubble * (slowest_over_mean(share, largest_tokens, largest_attention) - 1.0), bubble >= 0)


def real_rate(tokens_per_second, padding_share):
    """Tokens of documents a second: ``tokens_per_second (1 - padding_share)``.

    Parameters
        tokens_per_second [token/s]: tokens computed a second, padding included, >= 0
        padding_share [1]: share of them that belong to no document, in [0, 1]
    Returns [token/s]: rate of real tokens
    Source: Krell et al., Efficient Sequence Packing without Cross-contamination, 2021, section 4, https://arxiv.org/abs/2107.02027
    Leaves out: tokens that are computed but not trained on, such as prompts

    >>> float(real_rate(1000.0, 0.25))
    750.0
    """
    return inside(1.0 * tokens_per_second * (1.0 - padding_share), tokens_per_second >= 0, fraction(padding_share))
