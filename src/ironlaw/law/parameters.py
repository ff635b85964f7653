"""How many parameters a decoder-only transformer holds, counted matrix by matrix.

Flags (``gated_mlp``, ``tie_word_embeddings``, ...) are numbers, 0 for no and 1 for yes, so that rows of different kinds
stand in one column. A size that is zero, negative, infinite or nan gives nan.
"""

from __future__ import annotations

import numpy as np

from ironlaw.law import mixers
from ironlaw.law._domain import floats as _floats
from ironlaw.law._domain import on_domain as _on_domain

mamba, mamba_matmul = mixers.mamba, mixers.mamba_matmul
linear_attention, linear_attention_matmul = mixers.linear_attention, mixers.linear_attention_matmul


def attention(hidden_size, num_attention_heads, num_key_value_heads, head_dim, query_key_value_bias, attention_output_bias, qk_norm):
    """Query, key, value and output projections of one layer: ``2 h d (a + k)``, their biases, and the norms of q and k.

    With h = hidden_size, d = head_dim, a = num_attention_heads, k = num_key_value_heads:
    ``2 h d (a + k) + query_key_value_bias d (a + 2 k) + attention_output_bias h + qk_norm 2 d``.

    Parameters
        hidden_size [1] > 0            width of the residual stream
        num_attention_heads [1] > 0    query heads
        num_key_value_heads [1] > 0    key (and value) heads; equal to num_attention_heads without grouping
        head_dim [1] > 0               width of one head
        query_key_value_bias [1]       0 or 1: the three input projections carry biases
        attention_output_bias [1]      0 or 1: the output projection carries a bias
        qk_norm [1]                    0 or 1: q and k each pass a norm of head_dim weights, shared by the heads
    Returns      ndarray, parameters [parameter], shape of the broadcast inputs
    Source:      Ainslie et al., GQA, EMNLP 2023, section 2.2, https://arxiv.org/abs/2305.13245
    Leaves out:  latent attention (its own law), linear attention, norms over all heads at once, attention sinks
    >>> float(attention(4096, 32, 8, 128, 0, 0, 0))  # a layer of Llama 3 8B
    41943040.0
    """
    hidden_size, heads, kv_heads, head_dim = _floats(hidden_size, num_attention_heads, num_key_value_heads, head_dim)
    input_bias, output_bias, norms = _floats(query_key_value_bias, attention_output_bias, qk_norm)
    matrices = 2.0 * hidden_size * head_dim * (heads + kv_heads)
    biases = input_bias * head_dim * (heads + 2.0 * kv_heads) + output_bias * hidden_size
    value = matrices + biases + norms * 2.0 * head_dim
    return _on_domain(value, (hidden_size, heads, kv_heads, head_dim), (input_bias, output_bias, norms))


def mlp(hidden_size, intermediate_size, gated_mlp, mlp_bias):
    """Feed-forward block of one layer: ``(2 + gated_mlp) h f``, plus ``(1 + gated_mlp) f + h`` when it has biases.

    With h = hidden_size and f = intermediate_size. A gated block (SwiGLU, GeGLU) has a third matrix.

    Parameters
        hidden_size [1] > 0            width of the residual stream
        intermediate_size [1] > 0      width inside the block, of each of gate and up when gated
        gated_mlp [1]                  0 or 1: gate, up and down instead of up and down
        mlp_bias [1]                   0 or 1: every matrix carries a bias
    Returns      ndarray, parameters [parameter], shape of the broadcast inputs
    Source:      Shazeer, GLU Variants Improve Transformer, 2020, section 2, https://arxiv.org/abs/2002.05202
    Leaves out:  experts and their router (their own laws)
    >>> float(mlp(4096, 14336, 1, 0))  # a layer of Llama 3 8B
    176160768.0
    """
    hidden_size, inner, gated, bias = _floats(hidden_size, intermediate_size, gated_mlp, mlp_bias)
    value = (2.0 + gated) * hidden_size * inner + bias * ((1.0 + gated) * inner + hidden_size)
    return _on_domain(value, (hidden_size, inner), (gated, bias))


def linear(inputs, outputs, bias):
    """A linear layer, or a convolution whose inputs are channels times the area of its kernel: ``outputs (inputs + bias)``.

    Parameters
        inputs [1] > 0     elements that make one output
        outputs [1] > 0    outputs, of a convolution its channels
        bias [1]           0 or 1: every output adds a number of its own
    Returns      ndarray, parameters [parameter], shape of the broadcast inputs
    Source:      He et al., Deep Residual Learning, 2015, table 1, https://arxiv.org/abs/1512.03385
    Leaves out:  groups, which divide the inputs of each output
    >>> float(linear(3 * 7 * 7, 64, 0))  # the first convolution of ResNet-50
    9408.0
    """
    inputs, outputs, bias = _floats(inputs, outputs, bias)
    return _on_domain(outputs * (inputs + bias), (inputs, outputs), (bias,))


def norm(hidden_size, norm_weights):
    """One normalisation: ``norm_weights h``, 1 for RMSNorm or LayerNorm without bias, 2 for LayerNorm.

    Parameters
        hidden_size [1] > 0            width that is normalised
        norm_weights [1] > 0           weights per channel: 1 scale, 2 scale and bias
    Returns      ndarray, parameters [parameter], shape of the broadcast inputs
    Source:      Zhang and Sennrich, Root Mean Square Layer Normalization, NeurIPS 2019, section 3,
                 https://arxiv.org/abs/1910.07467
    Leaves out:  nothing
    >>> float(norm(768, 2))
    1536.0
    """
    hidden_size, weights = _floats(hidden_size, norm_weights)
    return _on_domain(weights * hidden_size, (hidden_size, weights), ())


def embedding(vocab_size, hidden_size):
    """One table of token vectors (input embedding, or untied output head): ``v h``.

    Parameters
        vocab_size [1] > 0             rows, padding rows included if the model stores them
        hidden_size [1] > 0            width of the residual stream
    Returns      ndarray, parameters [parameter], shape of the broadcast inputs
    Source:      Press and Wolf, Using the Output Embedding, EACL 2017, section 2, https://arxiv.org/abs/1608.05859
    Leaves out:  factored embeddings and a bias of the output head
    >>> float(embedding(128256, 4096))
    525336576.0
    """
    vocab_size, hidden_size = _floats(vocab_size, hidden_size)
    return _on_domain(vocab_size * hidden_size, (vocab_size, hidden_size), ())


def learned_positions(max_position_embeddings, hidden_size):
    """A table of learned absolute positions: ``p h``. Rotary positions and ALiBi hold no parameters.

    Parameters
        max_position_embeddings [1] > 0   positions the table holds
        hidden_size [1] > 0               width of the residual stream
    Returns      ndarray, parameters [parameter], shape of the broadcast inputs
    Source:      Radford et al., Improving Language Understanding by Generative Pre-Training, 2018, section 3.1 (the table W_p),
                 https://cdn.openai.com/research-covers/language-unsupervised/language_understanding_paper.pdf
    Leaves out:  the two rows that OPT keeps before its first position
    >>> float(learned_positions(1024, 768))
    786432.0
    """
    positions, hidden_size = _floats(max_position_embeddings, hidden_size)
    return _on_domain(positions * hidden_size, (positions, hidden_size), ())


def matmul_per_layer(hidden_size, num_attention_heads, num_key_value_heads, head_dim, intermediate_size, gated_mlp):
    """Weights of one layer that multiply every token: ``2 h d (a + k) + (2 + gated_mlp) h f``.

    What forward and backward FLOP are counted from: the matrices, without biases and norms.

    Parameters
        hidden_size [1] > 0            width of the residual stream
        num_attention_heads [1] > 0    query heads
        num_key_value_heads [1] > 0    key (and value) heads
        head_dim [1] > 0               width of one head
        intermediate_size [1] > 0      width inside the feed-forward block
        gated_mlp [1]                  0 or 1: three matrices in the feed-forward block instead of two
    Returns      ndarray, parameters [parameter], shape of the broadcast inputs
    Source:      Kaplan et al., Scaling Laws for Neural Language Models, 2020, section 2.1 table 1,
                 https://arxiv.org/abs/2001.08361
    Leaves out:  the output head, counted once per model and not per layer; experts
    >>> float(matmul_per_layer(4096, 32, 8, 128, 14336, 1))  # Llama 3 8B
    218103808.0
    """
    projections = attention(hidden_size, num_attention_heads, num_key_value_heads, head_dim, 0, 0, 0)
    return projections + mlp(hidden_size, intermediate_size, gated_mlp, 0)


def latent_attention(hidden_size, num_attention_heads, q_lora_rank, kv_lora_rank, qk_nope_head_dim, qk_rope_head_dim, v_head_dim):
    """Multi-head latent attention (MLA) of one layer: ``latent_attention_matmul`` and the norms of both latents, ``q + c``.

    With q = q_lora_rank, c = kv_lora_rank.

    Parameters
        hidden_size [1] > 0            width of the residual stream
        num_attention_heads [1] > 0    heads
        q_lora_rank [1] >= 0           width of the queries' latent; 0: queries come from one full matrix, without a norm
        kv_lora_rank [1] > 0           width of the latent that keys and values share
        qk_nope_head_dim [1] > 0       part of a query or key without position
        qk_rope_head_dim [1] >= 0      part with rotary position; the key's is shared by the heads
        v_head_dim [1] > 0             width of one head's value
    Returns      ndarray, parameters [parameter], shape of the broadcast inputs
    Source:      DeepSeek-AI, DeepSeek-V2, 2024, section 2.1 and appendix C, https://arxiv.org/abs/2405.04434
    Leaves out:  biases of the projections, an indexer that picks keys (its own law)
    >>> float(latent_attention(7168, 128, 1536, 512, 128, 64, 128))  # a layer of DeepSeek-V3
    187107328.0
    """
    q_rank, kv_rank = _floats(q_lora_rank, kv_lora_rank)
    matrices = latent_attention_matmul(
        hidden_size, num_attention_heads, q_lora_rank, kv_lora_rank, qk_nope_head_dim, qk_rope_head_dim, v_head_dim
    )
    return matrices + q_rank + kv_rank


def latent_attention_matmul(hidden_size, num_attention_heads, q_lora_rank, kv_lora_rank, qk_nope_head_dim, qk_rope_head_dim, v_head_dim):
    """Matrices of latent attention: ``h q + q a (n + r) + h (c + r) + c a (n + v) + a v h``, the first two ``h a (n + r)`` at q = 0.

    With h = hidden_size, a = num_attention_heads, q = q_lora_rank, c = kv_lora_rank, n = qk_nope_head_dim,
    r = qk_rope_head_dim, v = v_head_dim.

    Parameters
        hidden_size [1] > 0            width of the residual stream
        num_attention_heads [1] > 0    heads
        q_lora_rank [1] >= 0           width of the queries' latent; 0: queries come from one full matrix
        kv_lora_rank [1] > 0           width of the latent that keys and values share
        qk_nope_head_dim [1] > 0       part of a query or key without position
        qk_rope_head_dim [1] >= 0      part with rotary position; the key's is shared by the heads
        v_head_dim [1] > 0             width of one head's value
    Returns      ndarray, parameters [parameter], shape of the broadcast inputs
    Source:      DeepSeek-AI, DeepSeek-V2, 2024, section 2.1 and appendix C, https://arxiv.org/abs/2405.04434
    Leaves out:  norms, biases, an indexer that picks keys (its own law)
    >>> float(latent_attention_matmul(2048, 16, 0, 512, 128, 64, 128))  # a layer of DeepSeek-V2-Lite
    13762560.0
    """
    hidden_size, heads, q_rank, kv_rank = _floats(hidden_size, num_attention_heads, q_lora_rank, kv_lora_rank)
    nope, rope, value_dim = _floats(qk_nope_head_dim, qk_rope_head_dim, v_head_dim)
    wide = heads * (nope + rope)
    queries = np.where(q_rank > 0.0, q_rank * (hidden_size + wide), hidden_size * wide)
    keys_and_values = hidden_size * (kv_rank + rope) + kv_rank * heads * (nope + value_dim)
    value = np.where((q_rank >= 0.0) & (rope >= 0.0), queries + keys_and_values + heads * value_dim * hidden_size, np.nan)
    return _on_domain(value, (hidden_size, heads, kv_rank, nope, value_dim), ())


def indexer_matmul(hidden_size, q_lora_rank, index_n_heads, index_head_dim):
    """Matrices of an indexer that picks the keys of latent attention: ``q n d + h (d + n)``, queries, the one key, a weight a head.

    With h = hidden_size, q = q_lora_rank, n = index_n_heads, d = index_head_dim.

    Parameters
        hidden_size [1] > 0            width of the residual stream
        q_lora_rank [1] > 0            width of the latent that the indexer's queries share with attention
        index_n_heads [1] > 0          heads of the indexer
        index_head_dim [1] > 0         width of one of them
    Returns      ndarray, parameters [parameter], shape of the broadcast inputs
    Source:      DeepSeek-AI, DeepSeek-V3.2, 2025, section 2.1, https://arxiv.org/abs/2512.02556; matrix by matrix as
                 huggingface/transformers stores them, modular_deepseek_v32.py, DeepseekV32Indexer
    Leaves out:  the norm of the key
    >>> float(indexer_matmul(7168, 1536, 64, 128))  # a layer of DeepSeek-V3.2
    13959168.0
    """
    hidden_size, rank, heads, width = _floats(hidden_size, q_lora_rank, index_n_heads, index_head_dim)
    return _on_domain(rank * heads * width + hidden_size * (width + heads), (hidden_size, rank, heads, width), ())


def indexer(hidden_size, q_lora_rank, index_n_heads, index_head_dim):
    """An indexer that picks the keys of latent attention: ``indexer_matmul + 2 d``, the norm of its key with weight and bias.

    With d = index_head_dim.

    Parameters
        hidden_size [1] > 0            width of the residual stream
        q_lora_rank [1] > 0            width of the latent that the indexer's queries share with attention
        index_n_heads [1] > 0          heads of the indexer
        index_head_dim [1] > 0         width of one of them
    Returns      ndarray, parameters [parameter], shape of the broadcast inputs
    Source:      DeepSeek-AI, DeepSeek-V3.2, 2025, section 2.1, https://arxiv.org/abs/2512.02556; matrix by matrix as
                 huggingface/transformers stores them, modular_deepseek_v32.py, DeepseekV32Indexer
    Leaves out:  scales of the cached keys
    >>> float(indexer(7168, 1536, 64, 128))  # a layer of DeepSeek-V3.2
    13959424.0
    """
    (width,) = _floats(index_head_dim)
    return indexer_matmul(hidden_size, q_lora_rank, index_n_heads, index_head_dim) + 2.0 * width


def router(hidden_size, num_experts, router_bias):
    """What picks the experts of one layer: ``h e``, and ``e`` more with a bias or correction for each expert.

    With h = hidden_size, e = num_experts.

    Parameters
        hidden_size [1] > 0            width of the residual stream
        num_experts [1] > 0            routed experts of the layer
        router_bias [1]                0 or 1: one more number for each expert, learned or moved by the load (DeepSeek-V3)
    Returns      ndarray, parameters [parameter], shape of the broadcast inputs
    Source:      Shazeer et al., Outrageously Large Neural Networks, ICLR 2017, section 2.1, https://arxiv.org/abs/1701.06538
    Leaves out:  the gate of a shared expert (h more)
    >>> float(router(7168, 256, 1))  # a layer of DeepSeek-V3
    1835264.0
    """
    hidden_size, experts_, bias = _floats(hidden_size, num_experts, router_bias)
    return _on_domain(experts_ * hidden_size + bias * experts_, (hidden_size, experts_), (bias,))


def expert(hidden_size, moe_intermediate_size, gated_mlp, expert_bias):
    """One expert: ``(2 + gated_mlp) h f``, plus ``(1 + gated_mlp) f + h`` when it has biases.

    With h = hidden_size and f = moe_intermediate_size; a feed-forward block like that of a dense layer.

    Parameters
        hidden_size [1] > 0             width of the residual stream
        moe_intermediate_size [1] > 0   width inside the expert
        gated_mlp [1]                   0 or 1: gate, up and down instead of up and down
        expert_bias [1]                 0 or 1: every matrix carries a bias
    Returns      ndarray, parameters [parameter], shape of the broadcast inputs
    Source:      Jiang et al., Mixtral of Experts, 2024, section 2.1, https://arxiv.org/abs/2401.04088
    Leaves out:  experts of a width that differs from the residual stream's
    >>> float(expert(4096, 14336, 1, 0))  # one of the eight in a layer of Mixtral 8x7B
    176160768.0
    """
    return mlp(hidden_size, moe_intermediate_size, gated_mlp, expert_bias)


def experts(hidden_size, num_experts, moe_intermediate_size, gated_mlp, expert_bias):
    """All routed experts of one layer: ``num_experts expert``.

    Parameters
        hidden_size [1] > 0             width of the residual stream
        num_experts [1] > 0             routed experts of the layer
        moe_intermediate_size [1] > 0   width inside one of them
        gated_mlp [1]                   0 or 1: gate, up and down instead of up and down
        expert_bias [1]                 0 or 1: every matrix carries a bias
    Returns      ndarray, parameters [parameter], shape of the broadcast inputs
    Source:      Jiang et al., Mixtral of Experts, 2024, section 2.1, https://arxiv.org/abs/2401.04088
    Leaves out:  shared experts, the router
    >>> float(experts(4096, 8, 14336, 1, 0))  # a layer of Mixtral 8x7B
    1409286144.0
    """
    (count,) = _floats(num_experts)
    return _on_domain(count * expert(hidden_size, moe_intermediate_size, gated_mlp, expert_bias), (count,), ())


def textbook_decoder(num_hidden_layers, hidden_size, vocab_size):
    """A decoder by the textbook's rule: ``12 L h^2 + 2 v h``, four h x h products of attention and an MLP of four widths.

    Parameters
        num_hidden_layers [1] > 0      layers, L
        hidden_size [1] > 0            width of the residual stream
        vocab_size [1] > 0             rows of the embedding and of the output layer
    Returns      ndarray, parameters [parameter], shape of the broadcast inputs
    Source:      Kaplan et al., Scaling Laws for Neural Language Models, 2020, table 1 (12 L h^2), https://arxiv.org/abs/2001.08361, with an
        embedding and an output layer; the estimation exercises
    Leaves out:  norms, biases, positions, shared key and value heads, gated or narrower MLPs, a tied output layer
    >>> float(textbook_decoder(40, 5120, 32000)) / 1e9  # 12 * 40 * 5120**2 + 2 * 32000 * 5120
    12.910592
    """
    layers, width, vocab_size = _floats(num_hidden_layers, hidden_size, vocab_size)
    return _on_domain(12.0 * layers * width**2 + 2.0 * vocab_size * width, (layers, width, vocab_size), ())


def decoder(
    hidden_size,
    num_hidden_layers,
    num_attention_heads,
    num_key_value_heads,
    head_dim,
    intermediate_size,
    vocab_size,
    max_position_embeddings,
    learned_position_embedding,
    tie_word_embeddings,
    gated_mlp,
    norm_weights,
    norms_per_layer,
    embedding_norm,
    qk_norm,
    query_key_value_bias,
    attention_output_bias,
    mlp_bias,
):
    """A whole dense decoder: ``L (attention + mlp + norms_per_layer norm) + (2 - tie) v h + positions + last norm``.

    Parameters
        hidden_size [1] > 0               width of the residual stream
        num_hidden_layers [1] > 0         layers, L
        num_attention_heads [1] > 0       query heads
        num_key_value_heads [1] > 0       key (and value) heads
        head_dim [1] > 0                  width of one head
        intermediate_size [1] > 0         width inside the feed-forward block
        vocab_size [1] > 0                rows of the embedding as stored, padding included
        max_position_embeddings [1] > 0   positions the model can hold
        learned_position_embedding [1]    0 or 1: each position has a learned vector
        tie_word_embeddings [1]           0 or 1: the output head is the input embedding
        gated_mlp [1]                     0 or 1: three matrices in the feed-forward block instead of two
        norm_weights [1] > 0              weights per channel of a norm: 1 scale, 2 scale and bias
        norms_per_layer [1] > 0           norms over hidden_size in one layer: 2, or 4 with norms after the blocks too
        embedding_norm [1]                0 or 1: the embedding is normalised
        qk_norm [1]                       0 or 1: q and k each pass a norm of head_dim weights
        query_key_value_bias [1]          0 or 1
        attention_output_bias [1]         0 or 1
        mlp_bias [1]                      0 or 1
    Returns      ndarray, parameters [parameter], shape of the broadcast inputs
    Source:      Narayanan et al., Efficient Large-Scale Language Model Training, SC 2021, section 5 equation 2,
                 https://arxiv.org/abs/2104.04473, with grouped heads, gates and untied heads added matrix by matrix
    Leaves out:  experts, multi-token prediction heads, vision towers, adapters, a bias of the output head
    >>> int(decoder(4096, 32, 32, 8, 128, 14336, 128256, 8192, 0, 0, 1, 1, 2, 0, 0, 0, 0, 0))  # Llama 3 8B, as published
    8030261248
    >>> int(decoder(768, 12, 12, 12, 64, 3072, 50257, 1024, 1, 1, 0, 2, 2, 0, 0, 1, 1, 1))  # GPT-2, as published
    124439808
    """
    layers, norms, learned, tied, first_norm = _floats(
        num_hidden_layers, norms_per_layer, learned_position_embedding, tie_word_embeddings, embedding_norm
    )
    one_norm = norm(hidden_size, norm_weights)
    layer = (
        attention(hidden_size, num_attention_heads, num_key_value_heads, head_dim, query_key_value_bias, attention_output_bias, qk_norm)
        + mlp(hidden_size, intermediate_size, gated_mlp, mlp_bias)
        + norms * one_norm
    )
    tables = (2.0 - tied) * embedding(vocab_size, hidden_size)
    positions = learned * learned_positions(max_position_embeddings, hidden_size)
    value = layers * layer + tables + positions + (1.0 + first_norm) * one_norm
    return _on_domain(value, (layers, norms), (learned, tied, first_norm))
