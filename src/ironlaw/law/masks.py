"""Keys that a query sees under a mask: causal, windowed, in chunks; and what a mask leaves uneven between pieces of a sequence."""

from __future__ import annotations

import numpy as np

from ironlaw.law._domain import inside, ratio


def attended_length(seq_len, window):
    """Keys a causal query sees on average, in the field's convention: ``s / 2``, in a window ``(w w / 2 + (s - w) w) / s``.

    The first w queries see w/2 on average, the others w. The exact count of the full causal mask is (s + 1) / 2; the
    convention drops the half, and the two forms meet at w = s.

    Parameters
        seq_len [token]: length s of the sequence, > 0
        window [token]: width w of the sliding window; 0, negative or more than s means none, any
    Returns [token]: mean number of keys
    Source: Dao, FlashAttention-2, 2023, section 4.1 (causal counts as half), https://arxiv.org/abs/2307.08691
    Leaves out: document masks, attention sinks

    >>> float(attended_length(8192, 0)), float(attended_length(8192, 4096))
    (4096.0, 3072.0)
    """
    windowed = ratio(0.5 * window * window + (1.0 * seq_len - window) * window, 1.0 * seq_len)
    limited = np.logical_and(window > 0, window < seq_len)
    return inside(np.where(limited, windowed, 0.5 * seq_len), seq_len > 0, np.equal(window, window))


def causal_imbalance(n, seq_len, window):
    """Work of the last of ``n`` equal pieces of a sequence over the mean: ``n (pairs(s) - pairs(s - s / n)) / pairs(s)``.

    pairs(x) counts query-key pairs of the first x tokens, ``x x / 2``, in a window ``w w / 2 + (x - w) w``. Without a window the
    last piece has (2 n - 1) / n times the mean. Ranks of a ring pass blocks in step, and all gather before they compute: the last
    piece sets the pace. Two chunks a rank, one from either end, leave all with the mean.

    Parameters
        n [1]: pieces, one a rank, >= 1
        seq_len [token]: length s of the sequence, > 0
        window [token]: width w of the sliding window; 0, negative or more than s means none, any
    Returns [1]: slowest over mean
    Source: Brandon et al., Striped Attention, 2023, section 3 (the ring's imbalance under a causal mask), https://arxiv.org/abs/2311.09431
    Leaves out: tiles of a kernel that the mask cuts

    >>> float(causal_imbalance(1, 8192, 0)), float(causal_imbalance(4, 8192, 0)), float(causal_imbalance(4, 8192, 2048))
    (1.0, 1.75, 1.1428571428571428)
    """
    ahead = seq_len - ratio(1.0 * seq_len, 1.0 * n)
    whole = _pairs(1.0 * seq_len, window, seq_len)
    share = ratio(whole - _pairs(ahead, window, seq_len), whole)
    return inside(n * share, n >= 1, seq_len > 0, np.equal(window, window))


def _pairs(length, window, seq_len):
    limited = np.logical_and(window > 0, window < seq_len)
    near = np.where(limited, np.minimum(1.0 * window, length), length)
    return 0.5 * near * near + (length - near) * near


def chunked_length(seq_len, window):
    """Keys a causal query sees on average when attention stays inside chunks: ``(n w w / 2 + r r / 2) / s``, n whole chunks and a rest r.

    With s = seq_len, w = window, n = floor(s / w), r = s - n w: every chunk is a causal mask of its own, in the field's convention of
    half a square.

    Parameters
        seq_len [token]: length s of the sequence, > 0
        window [token]: tokens w of a chunk, > 0
    Returns [token]: mean number of keys
    Source: huggingface/transformers, masking_utils.py, chunked_overlay (a query sees the keys of its own chunk),
        https://github.com/huggingface/transformers/blob/main/src/transformers/masking_utils.py
    Leaves out: document masks

    >>> float(chunked_length(32768, 8192)), float(chunked_length(4096, 8192))  # Llama 4: chunks of 8192
    (4096.0, 2048.0)
    """
    whole = np.floor(ratio(1.0 * seq_len, 1.0 * window))
    rest = 1.0 * seq_len - whole * window
    return inside(ratio(0.5 * (whole * window * window + rest * rest), 1.0 * seq_len), seq_len > 0, window > 0)
