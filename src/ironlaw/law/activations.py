"""Bytes that one layer keeps for the backward pass of one micro-batch, and what recomputation saves.

``tokens`` are those of one micro-batch on one rank: micro_batch_size seq_len / cp. The parts of a GPT layer with 2-byte
elements, dropout and unfused attention add up to ``s b h (34 + 5 a s / h)`` (Korthikanti et al.); a test holds them to it.
"""

from __future__ import annotations

import numpy as np

from ironlaw.law._domain import flag, inside, ratio


def norms_and_residuals(tokens, hidden_size, norms, dropout, tp, sp, bytes_per_element, input_bytes):
    """Inputs of the norms and of the two linear blocks, dropout masks: ``t h (e norms + 2 i + 2 dropout)``, over tp with sp.

    The first matrices of the attention and of the feed-forward block each keep their input; each of the two dropouts
    before a residual addition keeps a mask of one byte. Every tp rank holds all of it unless sequence parallelism splits it.

    Parameters
        tokens [token]: tokens t of the micro-batch, >= 0
        hidden_size [1]: width h of the residual stream, >= 0
        norms [1]: norms of a layer over the whole width, >= 0
        dropout [1]: 1 when the layer has dropout, 0 or 1
        tp [1]: tensor-parallel ranks, >= 1
        sp [1]: 1 when sequence parallelism is on, 0 or 1
        bytes_per_element [B]: element e of an activation, >= 0
        input_bytes [B]: element i of a linear block's input as it is kept, the mean of the two: less than e where the cast one is, >= 0
    Offset [B]: a mask is one byte
    Factor [1/token]: elements of a token
    Returns [B]: bytes on each rank
    Source: Korthikanti et al., Reducing Activation Recomputation, MLSys 2023, sections 4.1 and 4.2.2, https://arxiv.org/abs/2205.05198
    Leaves out: norms kept in fp32 or recomputed (memory-efficient norms), statistics of the norms

    >>> float(norms_and_residuals(1, 1, 2, 1, 1, 0, 2, 2)), float(norms_and_residuals(4096, 8192, 2, 0, 8, 1, 2, 2))
    (10.0, 33554432.0)
    >>> float(norms_and_residuals(1, 1, 2, 0, 1, 0, 2, 1))  # inputs kept in one byte
    6.0
    """
    each = 1.0 * bytes_per_element * norms + 2.0 * input_bytes + 2.0 * dropout
    kept = ratio(1.0 * tokens * hidden_size * each, np.where(np.equal(sp, 1), 1.0 * tp, 1.0))
    return inside(
        kept, tokens >= 0, hidden_size >= 0, norms >= 0, flag(dropout), tp >= 1, flag(sp), bytes_per_element >= 0, input_bytes >= 0
    )


def attention(tokens, num_attention_heads, num_key_value_heads, head_dim, flash, tp, bytes_per_element):
    """Queries, keys, values and the core's output: ``t (e d (2 a + 2 kv) + 4 a flash) / tp``.

    Parameters
        tokens [token]: tokens t of the micro-batch, >= 0
        num_attention_heads [1]: query heads a, >= 0
        num_key_value_heads [1]: key and value heads kv, >= 0
        head_dim [1]: width d of a head, >= 0
        flash [1]: 1 when the core is fused and keeps a 4-byte logsumexp for each head and token, 0 or 1
        tp [1]: tensor-parallel ranks, >= 1
        bytes_per_element [B]: element e of an activation, >= 0
    Offset [B]: the logsumexp is 4 bytes
    Factor [1/token]: rows of a token
    Returns [B]: bytes on each rank
    Source: Korthikanti et al., Reducing Activation Recomputation, MLSys 2023, section 4.1, https://arxiv.org/abs/2205.05198; Dao et al.,
        FlashAttention, NeurIPS 2022, algorithm 1 (logsumexp), https://arxiv.org/abs/2205.14135
    Leaves out: key and value heads held more than once when tp exceeds them; latent attention; norms of q and k

    >>> float(attention(32 * 1024, 25, 25, 64, 0, 1, 2))  # worked in the training chapter
    419430400.0
    """
    rows = 1.0 * bytes_per_element * head_dim * (2.0 * num_attention_heads + 2.0 * num_key_value_heads)
    kept = ratio(1.0 * tokens * (rows + 4.0 * num_attention_heads * flash), 1.0 * tp)
    return inside(
        kept, tokens >= 0, num_attention_heads >= 0, num_key_value_heads >= 0, head_dim >= 0, flag(flash), tp >= 1, bytes_per_element >= 0
    )


def ring_attention(tokens, n, num_attention_heads, num_key_value_heads, head_dim, bytes_per_element):
    """What one layer's ring holds while it runs: ``t n e d (2 kv + a)``, blocks of all ranks and a partial output for each.

    A step receives into a block of its own and writes an output of its own; outputs are merged when the last one is there.

    Parameters
        tokens [token]: tokens t of the micro-batch on one rank, >= 0
        n [1]: ranks of the ring, >= 1
        num_attention_heads [1]: query heads a of a rank, >= 0
        num_key_value_heads [1]: key and value heads kv of a rank, >= 0
        head_dim [1]: width d of a head, >= 0
        bytes_per_element [B]: element e of an activation, >= 0
    Factor [1/token]: rows of a token
    Returns [B]: bytes on the rank with the last tokens, whose outputs are all whole
    Source: NVIDIA, Transformer Engine, pytorch/attention/dot_product_attention/context_parallel.py (AttnFuncWithCPAndKVP2P: lists
        p2p_comm_buffers and out_per_step of cp_size tensors), https://github.com/NVIDIA/TransformerEngine, read 2026-11-22
    Leaves out: statistics of the softmax; rings that merge at once and hold two blocks

    >>> float(ring_attention(8192, 4, 4, 1, 128, 2))
    50331648.0
    """
    held = 1.0 * tokens * n * bytes_per_element * head_dim * (2.0 * num_key_value_heads + num_attention_heads)
    return inside(held, tokens >= 0, n >= 1, num_attention_heads >= 0, num_key_value_heads >= 0, head_dim >= 0, bytes_per_element >= 0)


def gathered_attention(tokens, n, num_key_value_heads, head_dim, bytes_per_element):
    """Keys and values of all ranks, and their gradients in the backward pass of one layer: ``4 t n e d kv``.

    Parameters
        tokens [token]: tokens t of the micro-batch on one rank, >= 0
        n [1]: ranks that gather, >= 1
        num_key_value_heads [1]: key and value heads kv of a rank, >= 0
        head_dim [1]: width d of a head, >= 0
        bytes_per_element [B]: element e of an activation, >= 0
    Factor [1/token]: rows of a token
    Returns [B]: bytes on each rank
    Source: Grattafiori et al., The Llama 3 Herd of Models, 2024, section 3.3.2, https://arxiv.org/abs/2407.21783; NVIDIA, Transformer
        Engine, pytorch/attention/dot_product_attention/context_parallel.py (AttnFuncWithCPAndKVAllGather),
        https://github.com/NVIDIA/TransformerEngine, read 2026-11-22
    Leaves out: copies of the part that one chunk of queries sees

    >>> float(gathered_attention(8192, 4, 1, 128, 2))
    33554432.0
    """
    held = 4.0 * tokens * n * bytes_per_element * head_dim * num_key_value_heads
    return inside(held, tokens >= 0, n >= 1, num_key_value_heads >= 0, head_dim >= 0, bytes_per_element >= 0)


def attention_scores(tokens, seq_len, num_attention_heads, flash, dropout, tp, bytes_per_element):
    """Scores an unfused core keeps: ``t s a (e + dropout (1 + e)) / tp``: softmax output, mask and dropped output; 0 with flash.

    Parameters
        tokens [token]: tokens t of the micro-batch, >= 0
        seq_len [token]: keys s that each query scores, >= 0
        num_attention_heads [1]: query heads a, >= 0
        flash [1]: 1 when the core is fused, 0 or 1
        dropout [1]: 1 when the scores have dropout, 0 or 1
        tp [1]: tensor-parallel ranks, >= 1
        bytes_per_element [B]: element e of an activation, >= 0
    Offset [B]: a mask is one byte
    Factor [1/token/token]: scores of a pair of tokens
    Returns [B]: bytes on each rank
    Source: Korthikanti et al., Reducing Activation Recomputation, MLSys 2023, section 4.1, https://arxiv.org/abs/2205.05198
    Leaves out: causal halving: unfused kernels store the full square; selective recomputation, which keeps none of it

    >>> float(attention_scores(4096, 4096, 1, 0, 0, 1, 4))  # fp32 scores of one head; worked in the training chapter
    67108864.0
    """
    each = 1.0 * bytes_per_element + dropout * (1.0 + bytes_per_element)
    kept = ratio(1.0 * tokens * seq_len * num_attention_heads * each, 1.0 * tp)
    return inside(
        np.where(np.equal(flash, 1), 0.0, kept),
        tokens >= 0,
        seq_len >= 0,
        num_attention_heads >= 0,
        flag(flash),
        flag(dropout),
        tp >= 1,
        bytes_per_element >= 0,
    )


def mlp(tokens, intermediate_size, saved, tp, bytes_per_element):
    """Inner tensors of the feed-forward block: ``t f e saved / tp``.

    ``saved`` tensors of inner width are kept: 2 for a plain block (input and output of the activation); for a gated one
    3 with a fused activation (gate, up, product) and 4 without (also the activated gate). The block's input is counted by
    norms_and_residuals.

    Parameters
        tokens [token]: tokens t of the micro-batch, >= 0
        intermediate_size [1]: inner width f, >= 0
        saved [1]: tensors of inner width that are kept, >= 0
        tp [1]: tensor-parallel ranks, >= 1
        bytes_per_element [B]: element e of an activation, >= 0
    Factor [1/token]: rows of a token
    Returns [B]: bytes on each rank
    Source: Korthikanti et al., Reducing Activation Recomputation, MLSys 2023, section 4.1, https://arxiv.org/abs/2205.05198; Shazeer, GLU
        Variants, 2020, eq. 5 (gated form), https://arxiv.org/abs/2002.05202
    Leaves out: experts and their routing buffers

    >>> float(mlp(1, 4 * 5120, 2, 1, 2)) / 5120  # 16 of Korthikanti's 34
    16.0
    """
    kept = ratio(1.0 * tokens * intermediate_size * bytes_per_element * saved, 1.0 * tp)
    return inside(kept, tokens >= 0, intermediate_size >= 0, saved >= 0, tp >= 1, bytes_per_element >= 0)


def checkpoint(tokens, hidden_size, tp, sp, bytes_per_element):
    """Input of a recomputed layer, all that it keeps: ``t h e``, over tp with sp.

    Parameters
        tokens [token]: tokens t of the micro-batch, >= 0
        hidden_size [1]: width h of the residual stream, >= 0
        tp [1]: tensor-parallel ranks, >= 1
        sp [1]: 1 when sequence parallelism is on, 0 or 1
        bytes_per_element [B]: element e of an activation, >= 0
    Factor [1/token]: elements of a token
    Returns [B]: bytes on each rank
    Source: Korthikanti et al., Reducing Activation Recomputation, MLSys 2023, table 2 (2 s b h), https://arxiv.org/abs/2205.05198
    Leaves out: the layer being recomputed, whose activations live during its backward pass; random-number states

    >>> float(checkpoint(8192, 8192, 1, 0, 2)) * 80  # worked in the study of ten sites
    10737418240.0
    """
    kept = ratio(1.0 * tokens * hidden_size * bytes_per_element, np.where(np.equal(sp, 1), 1.0 * tp, 1.0))
    return inside(kept, tokens >= 0, hidden_size >= 0, tp >= 1, flag(sp), bytes_per_element >= 0)


def korthikanti_layer(batch, seq_len, hidden_size, num_attention_heads, tp, sp):
    """A GPT layer in 2-byte elements, unfused: ``s b h (34 + 5 a s / h) / tp`` with sp, ``s b h (10 + 24 / tp + 5 a s / (h tp))`` without.

    Parameters
        batch [1]: sequences b of the micro-batch, >= 0
        seq_len [token]: tokens s of a sequence, >= 0
        hidden_size [1]: width h of the residual stream, > 0
        num_attention_heads [1]: heads a, >= 0
        tp [1]: tensor-parallel ranks, >= 1
        sp [1]: 1 when sequence parallelism is on, 0 or 1
    Offset [token]: scores go with pairs of tokens, the rest with tokens
    Factor [B]: 2-byte elements and 1-byte masks
    Returns [B]: bytes on each rank
    Source: Korthikanti et al., Reducing Activation Recomputation, MLSys 2023, eq. 1, 2 and 4, https://arxiv.org/abs/2205.05198
    Leaves out: grouped heads, gated blocks, models without dropout, fused attention: see the other laws here

    >>> round(float(korthikanti_layer(8, 4096, 5120, 40, 4, 0)) / 1e9, 3)  # worked in the estimation exercises
    9.395
    """
    scores = ratio(5.0 * num_attention_heads * seq_len, 1.0 * hidden_size)
    split = np.where(np.equal(sp, 1), 1.0 * tp, 1.0)
    kept = 1.0 * seq_len * batch * hidden_size * (ratio(10.0, split) + ratio(24.0, 1.0 * tp) + ratio(scores, 1.0 * tp))
    return inside(kept, batch >= 0, seq_len >= 0, hidden_size > 0, num_attention_heads >= 0, tp >= 1, flag(sp))


def checkpointed_simple(layers, interval, per_layer):
    """Textbook memory with a checkpoint every k layers: ``(L / k + k) per_layer``.

    Parameters
        layers [1]: layers L, >= 0
        interval [1]: layers k between checkpoints, > 0
        per_layer [B]: activations of one layer, >= 0
    Returns [B]: bytes
    Source: Chen et al., Training Deep Nets with Sublinear Memory Cost, 2016, section 4.1, https://arxiv.org/abs/1604.06174
    Leaves out: that a checkpoint is a small part of a layer's activations, which checkpointed_exact counts; too large by several times

    >>> round(float(checkpointed_simple(48, 7, 1.0)), 3)  # worked in the training chapter
    13.857
    """
    kept = (ratio(1.0 * layers, 1.0 * interval) + interval) * per_layer
    return inside(kept, layers >= 0, interval > 0, per_layer >= 0)


def checkpointed_exact(layers, interval, per_layer, boundary):
    """Memory with a checkpoint every k layers: ``ceil(L / k) boundary + min(k, L) per_layer``.

    Every segment keeps its input; during backward one segment at a time holds all its activations.

    Parameters
        layers [1]: layers L, >= 0
        interval [1]: layers k between checkpoints, > 0
        per_layer [B]: activations of one layer, >= 0
        boundary [B]: one checkpoint, see checkpoint, >= 0
    Returns [B]: bytes
    Source: Korthikanti et al., Reducing Activation Recomputation, MLSys 2023, section 5, https://arxiv.org/abs/2205.05198; errata E001-3
    Leaves out: micro-batches in flight; a segment's output, which is the next one's input

    >>> round(float(checkpointed_exact(40, 4, 8.13694976, 0.08388608)), 2)  # GB; errata E001-3: 33.4
    33.39
    """
    kept = np.ceil(ratio(1.0 * layers, 1.0 * interval)) * boundary + np.minimum(1.0 * interval, 1.0 * layers) * per_layer
    return inside(kept, layers >= 0, interval > 0, per_layer >= 0, boundary >= 0)


def optimal_interval(layers, per_layer, boundary):
    """Interval at which memory with checkpoints is least: ``sqrt(L boundary / per_layer)``.

    It is where the derivative of ``(L / k) boundary + k per_layer`` is zero. A GPT layer in 2-byte elements keeps s b h (34 + 5 a s / h)
    and a checkpoint is 2 s b h, so the interval is sqrt(2 L / (34 + 5 a s / h)). With ``boundary = per_layer`` it is the textbook's
    sqrt(L), at which checkpointed_simple is least. Below 1, a checkpoint at every layer is best.

    Parameters
        layers [1]: layers L, >= 0
        per_layer [B]: activations of one layer, > 0
        boundary [B]: one checkpoint, see checkpoint, >= 0
    Returns [1]: layers between checkpoints, not rounded
    Source: Chen et al., Training Deep Nets with Sublinear Memory Cost, 2016, section 4.1, https://arxiv.org/abs/1604.06174; Korthikanti
        et al., Reducing Activation Recomputation, MLSys 2023, table 2 (size of a checkpoint), https://arxiv.org/abs/2205.05198
    Leaves out: segments are whole numbers of layers; what else is in memory

    >>> float(optimal_interval(40, 1.0, 1.0))  # worked in the estimation exercises
    6.324555320336759
    >>> round(float(optimal_interval(40, 34 + 5 * 40 * 4096 / 5120, 2.0)), 2)  # the same exercise, with checkpoints of their true size
    0.64
    """
    with np.errstate(invalid="ignore"):
        interval = np.sqrt(ratio(1.0 * layers * boundary, 1.0 * per_layer))
    return inside(interval, layers >= 0, per_layer > 0, boundary >= 0)


def recomputed_layers(layers, checkpoints):
    """Layers whose forward pass runs again when k layers keep all they need: ``max(0, L - k)``.

    Parameters
        layers [1]: layers L, >= 0
        checkpoints [1]: layers k that are not run again, >= 0
    Returns [1]: forward passes of a layer
    Source: Chen et al., Training Deep Nets with Sublinear Memory Cost, 2016, section 3, https://arxiv.org/abs/1604.06174
    Leaves out: frameworks that run every layer of a segment again, which is layers

    >>> float(recomputed_layers(48, 7))  # worked in the training chapter
    41.0
    """
    return inside(np.maximum(0.0, 1.0 * layers - checkpoints), layers >= 0, checkpoints >= 0)


def logits(tokens, vocab_size, tp, bytes_per_logit):
    """Output scores kept for the loss: ``t v bytes_per_logit / tp``.

    Parameters
        tokens [token]: tokens t of the micro-batch, >= 0
        vocab_size [1]: vocabulary v, >= 0
        tp [1]: tensor-parallel ranks that split the vocabulary, >= 1
        bytes_per_logit [B]: all copies of one score: 4 for fp32 alone, 6 with its 2-byte original, >= 0
    Factor [1/token]: scores of a token
    Returns [B]: bytes on each rank
    Source: Korthikanti et al., Reducing Activation Recomputation, MLSys 2023, section 4.3 (4 s b v / t), https://arxiv.org/abs/2205.05198
    Leaves out: losses computed in chunks, which keep a part

    >>> float(logits(4096, 128000, 8, 4))
    262144000.0
    """
    kept = ratio(1.0 * tokens * vocab_size * bytes_per_logit, 1.0 * tp)
    return inside(kept, tokens >= 0, vocab_size >= 0, tp >= 1, bytes_per_logit >= 0)


def batch_memory(batch, per_sequence, fixed):
    """Memory of training at a batch: ``fixed + batch per_sequence``: weights, gradients and states once, activations by sequence.

    Parameters
        batch [1]: sequences (or images) worked on at once, >= 0
        per_sequence [B]: what one of them keeps, summed over the layers, >= 0
        fixed [B]: what does not depend on the batch, >= 0
    Returns [B]: memory
    Source: Korthikanti et al., Reducing Activation Recomputation in Large Transformer Models, MLSys 2023, equation 1 (proportional to b),
        https://arxiv.org/abs/2205.05198; Rajbhandari et al., ZeRO, SC 2020, section 3 (states are not)
    Leaves out: workspaces and fragmentation

    >>> float(batch_memory(4, 10 + 20 + 30 + 1 + 2 + 3, 0))  # worked in the training chapter
    264.0
    """
    return inside(1.0 * fixed + 1.0 * batch * per_sequence, batch >= 0, per_sequence >= 0, fixed >= 0)


def largest_batch(capacity, per_sequence, fixed):
    """The largest batch that memory holds: ``floor((capacity - fixed) / per_sequence)``, 0 where nothing fits.

    Parameters
        capacity [B]: memory of the device, >= 0
        per_sequence [B]: what one sequence (or image) keeps, summed over the layers, > 0
        fixed [B]: what does not depend on the batch, >= 0
    Offset [B]: whole sequences
    Returns [1]: sequences
    Source: batch_memory solved for the batch
    Leaves out: workspaces and fragmentation; batches that a kernel prefers, such as multiples of 8

    >>> float(largest_batch(264.0, 66.0, 0.0)), float(largest_batch(10.0, 66.0, 20.0))
    (4.0, 0.0)
    """
    room = np.maximum(1.0 * capacity - fixed, 0.0)
    count = np.floor(ratio(room, 1.0 * per_sequence) * (1.0 + 1e-12))
    return inside(count, capacity >= 0, per_sequence > 0, fixed >= 0)
