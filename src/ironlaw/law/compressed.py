"""Compressed attention (DeepSeek-V4): parameters, and the keys that a query sees beside its window.

One key-value head is shared by all query heads, keys are values. Beside a window of tokens a query sees entries that each stand for
``compress_ratio`` tokens. Where an indexer picks entries (compressed sparse attention) an entry also covers the tokens of the entry
before it; without an indexer (heavily compressed attention) every entry is seen. A size outside its domain gives nan.
"""

from __future__ import annotations

import numpy as np

from ironlaw.law import masks
from ironlaw.law._domain import flag, inside, ratio


def attention(hidden_size, num_attention_heads, head_dim, q_lora_rank, o_groups, o_lora_rank):
    """Attention of one layer without compressor and indexer: ``attention_matmul + q + d + a``.

    With q = q_lora_rank, d = head_dim, a = num_attention_heads: the norms of the two latents, and a sink for each head.

    Parameters
        hidden_size [1]: width of the residual stream, > 0
        num_attention_heads [1]: query heads, > 0
        head_dim [1]: width of a head, and of the one key-value head, > 0
        q_lora_rank [1]: width of the queries' latent, > 0
        o_groups [1]: groups of heads that are projected apart, > 0
        o_lora_rank [1]: width that each group is projected to, > 0
    Returns [1]: parameters
    Source: huggingface/transformers, modeling_deepseek_v4.py, DeepseekV4Attention,
        https://github.com/huggingface/transformers/blob/main/src/transformers/models/deepseek_v4/modular_deepseek_v4.py
    Leaves out: compressor and indexer

    >>> float(attention(4096, 64, 512, 1024, 8, 1024))  # a layer of DeepSeek-V4-Flash
    106956352.0
    """
    matrices = attention_matmul(hidden_size, num_attention_heads, head_dim, q_lora_rank, o_groups, o_lora_rank)
    return matrices + 1.0 * q_lora_rank + head_dim + num_attention_heads


def attention_matmul(hidden_size, num_attention_heads, head_dim, q_lora_rank, o_groups, o_lora_rank):
    """Projections of one layer: ``h (q + d) + q a d + a d r + g r h``, with the output in g groups of heads of rank r.

    With h = hidden_size, q = q_lora_rank, a = num_attention_heads, d = head_dim, g = o_groups, r = o_lora_rank. A group of a / g heads
    is projected to r, so the first output matrix has ``g (a d / g) r`` weights.

    Parameters
        hidden_size [1]: width of the residual stream, > 0
        num_attention_heads [1]: query heads, > 0
        head_dim [1]: width of a head, and of the one key-value head, > 0
        q_lora_rank [1]: width of the queries' latent, > 0
        o_groups [1]: groups of heads that are projected apart, > 0
        o_lora_rank [1]: width that each group is projected to, > 0
    Returns [1]: parameters
    Source: huggingface/transformers, modeling_deepseek_v4.py, DeepseekV4Attention and DeepseekV4GroupedLinear,
        https://github.com/huggingface/transformers/blob/main/src/transformers/models/deepseek_v4/modular_deepseek_v4.py
    Leaves out: norms, sinks, compressor and indexer

    >>> float(attention_matmul(4096, 64, 512, 1024, 8, 1024))  # 4096 x 1536, 1024 x 32768, 32768 x 1024, 8192 x 4096
    106954752.0
    """
    width = 1.0 * num_attention_heads * head_dim
    value = 1.0 * hidden_size * (1.0 * q_lora_rank + head_dim + 1.0 * o_groups * o_lora_rank) + width * (1.0 * q_lora_rank + o_lora_rank)
    return inside(value, hidden_size > 0, num_attention_heads > 0, head_dim > 0, q_lora_rank > 0, o_groups > 0, o_lora_rank > 0)


def compressor(hidden_size, head_dim, compress_ratio, overlaps):
    """What makes entries of tokens: ``(1 + o) d (2 h + m) + d``, two projections, a bias for each place in a window, and a norm.

    Parameters
        hidden_size [1]: width h of the residual stream, > 0
        head_dim [1]: width d of an entry, > 0
        compress_ratio [1]: tokens m that an entry stands for, > 0
        overlaps [1]: flag o, an entry also covers the tokens of the entry before it, 0 or 1
    Returns [1]: parameters
    Source: huggingface/transformers, modeling_deepseek_v4.py, DeepseekV4CSACompressor and DeepseekV4HCACompressor,
        https://github.com/huggingface/transformers/blob/main/src/transformers/models/deepseek_v4/modular_deepseek_v4.py
    Leaves out: the indexer

    >>> float(compressor(4096, 512, 4, 1)), float(compressor(4096, 512, 128, 0))  # DeepSeek-V4-Flash
    (8393216.0, 4260352.0)
    """
    value = (1.0 + overlaps) * head_dim * (2.0 * hidden_size + compress_ratio) + head_dim
    return inside(value, hidden_size > 0, head_dim > 0, compress_ratio > 0, flag(overlaps))


def indexer(hidden_size, q_lora_rank, index_n_heads, index_head_dim, compress_ratio):
    """The indexer of a layer: ``q n e + h n + compressor``, its queries, a weight for each head, and a narrow compressor.

    Parameters
        hidden_size [1]: width h of the residual stream, > 0
        q_lora_rank [1]: width q of the queries' latent, > 0
        index_n_heads [1]: heads n, > 0
        index_head_dim [1]: width e of one of them, > 0
        compress_ratio [1]: tokens that an entry stands for, > 0
    Returns [1]: parameters
    Source: huggingface/transformers, modeling_deepseek_v4.py, DeepseekV4Indexer,
        https://github.com/huggingface/transformers/blob/main/src/transformers/models/deepseek_v4/modular_deepseek_v4.py
    Leaves out: nothing

    >>> float(indexer(4096, 1024, 64, 128, 4))  # a layer of DeepSeek-V4-Flash
    10749056.0
    """
    value = 1.0 * index_n_heads * (1.0 * q_lora_rank * index_head_dim + hidden_size)
    value = value + compressor(hidden_size, index_head_dim, compress_ratio, 1.0)
    return inside(value, q_lora_rank > 0, index_n_heads > 0)


def block_indexer(hidden_size, index_n_heads, index_head_dim):
    """An indexer that picks blocks of keys for grouped attention: ``h (n + 1) e + 2 e``, queries, one key, and a norm of each.

    Parameters
        hidden_size [1]: width h of the residual stream, > 0
        index_n_heads [1]: heads n, > 0
        index_head_dim [1]: width e of one of them, > 0
    Returns [1]: parameters
    Source: huggingface/transformers, modular_minimax_m3_vl.py, MiniMaxM3VLIndexer,
        https://github.com/huggingface/transformers/blob/main/src/transformers/models/minimax_m3_vl/modular_minimax_m3_vl.py
    Leaves out: values of the indexer, which MiniMax M3 switches off

    >>> float(block_indexer(6144, 4, 128))  # a layer of MiniMax M3
    3932416.0
    """
    value = 1.0 * hidden_size * (index_n_heads + 1.0) * index_head_dim + 2.0 * index_head_dim
    return inside(value, hidden_size > 0, index_n_heads > 0, index_head_dim > 0)


def key_length(seq_len, window, compress_ratio, index_topk):
    """Tokens and entries that a causal query sees on average: ``attended_length(s, w) + attended_length(s / m, k)``.

    Parameters
        seq_len [token]: length s of the sequence, > 0
        window [token]: width w of the window, > 0
        compress_ratio [1]: tokens m that an entry stands for; 0: there are no entries, >= 0
        index_topk [token]: entries k that an indexer picks for a query; 0: it sees all, >= 0
    Returns [token]: mean number of keys
    Source: huggingface/transformers, modeling_deepseek_v4.py, DeepseekV4Attention (the entries stand beside the window's tokens),
        https://github.com/huggingface/transformers/blob/main/src/transformers/models/deepseek_v4/modular_deepseek_v4.py
    Leaves out: entries that the window covers too; a last window that is not full

    >>> float(key_length(65536, 128, 4, 512)), float(key_length(65536, 128, 128, 0))  # DeepSeek-V4-Flash
    (631.875, 383.875)
    """
    beside = masks.attended_length(seq_len, window)
    entries = ratio(1.0 * seq_len, np.where(np.equal(compress_ratio, 0), 1.0, 1.0 * compress_ratio))
    seen = np.where(np.equal(compress_ratio, 0), 0.0, masks.attended_length(entries, index_topk))
    return inside(beside + seen, seq_len > 0, window > 0, compress_ratio >= 0, index_topk >= 0)


def pooling_traffic(tokens, head_dim, compress_ratio, overlaps, bytes_per_element):
    """Traffic of making entries of tokens, one pass: ``t e d (2 (1 + o) + 1 / m)``, tensor by tensor.

    Values and scores of every token are read, twice over where windows overlap, and an entry is written; the softmax over a window
    and its norm stay on chip.

    Parameters
        tokens [token]: tokens t, >= 0
        head_dim [1]: width d of an entry, >= 0
        compress_ratio [1]: tokens m that an entry stands for, > 0
        overlaps [1]: flag o, an entry also covers the tokens of the entry before it, 0 or 1
        bytes_per_element [B]: element e, >= 0
    Factor [1/token]: times a token's values and scores are read
    Returns [B]: bytes moved
    Source: huggingface/transformers, modeling_deepseek_v4.py, DeepseekV4CSACompressor.forward, as one fused kernel (assumed: the kernels
        of the training stack are not public)
    Leaves out: the rotation of entries

    >>> float(pooling_traffic(1, 512, 4, 1, 2)), float(pooling_traffic(1, 512, 128, 0, 2))
    (4352.0, 2056.0)
    """
    per_token = 2.0 * (1.0 + overlaps) + ratio(1.0, 1.0 * compress_ratio)
    value = 1.0 * tokens * head_dim * per_token * bytes_per_element
    return inside(value, tokens >= 0, head_dim >= 0, compress_ratio > 0, flag(overlaps), bytes_per_element >= 0)
