"""Floating-point operations of a transformer: matrix by matrix, layer by layer, token by token."""

from __future__ import annotations

import numpy as np

from ironlaw.law._domain import flag, inside, ratio

# Operations of one element (those of optimizers: their records). An exponential, a root, a division, tanh and erf count as one
# each, as a comparison does: what they cost differs by device, and all of these operators wait for memory first.
OPERATIONS = {
    "softmax": 5.0,  # maximum, difference, exponential, sum, division
    "layernorm": 8.0,  # mean 1, variance 3, normalised 2, scale and shift 2
    "rmsnorm": 4.0,  # square and sum, normalised, scale
    "relu": 1.0,
    "relu2": 2.0,
    "tanh": 1.0,
    "sigmoid": 4.0,  # minus, exponential, sum, division
    "silu": 5.0,  # sigmoid and a product
    "gelu": 5.0,  # division, erf, sum, two products
    "gelu-tanh": 9.0,  # the polynomial 5, tanh, sum, two products
    "swiglu": 6.0,  # silu and the gate
    "geglu": 6.0,  # gelu and the gate
}


def gemm(m, n, k):
    """A matrix product (m, k) x (k, n): ``2 m n k``, a multiplication and an addition each.

    Parameters
        m [1]: rows of the first matrix, >= 0
        n [1]: columns of the second matrix, >= 0
        k [1]: inner extent, >= 0
    Factor [FLOP]: 2 for each multiply-add
    Returns [FLOP]: operations
    Source: Golub and Van Loan, Matrix Computations, 4th ed., 2013, section 1.1
    Leaves out: bias and activation, which cost m n each

    >>> float(gemm(4096, 4096, 4096))  # worked in the bandwidth-accounting note
    137438953472.0
    """
    return inside(2.0 * m * n * k, m >= 0, n >= 0, k >= 0)


def elementwise(elements, operations):
    """An operator that works element by element: ``elements operations``.

    Parameters
        elements [1]: elements of the tensor, or parameters an optimizer updates, >= 0
        operations [FLOP]: operations of one, see OPERATIONS and the optimizers of the catalogue, >= 0
    Returns [FLOP]: operations
    Source: count of the textbook definitions; NVIDIA, Memory-Limited Layers User's Guide,
        https://docs.nvidia.com/deeplearning/performance/dl-performance-memory-limited (why they hardly matter)
    Leaves out: what an exponential or a root costs more than a product

    >>> float(elementwise(4096, 5))  # softmax of a row
    20480.0
    """
    return inside(1.0 * elements * operations, elements >= 0, operations >= 0)


def convolved_extent(extent, kernel_extent, stride, padding):
    """Positions a convolution visits along one side: ``floor((extent + 2 padding - kernel_extent) / stride) + 1``.

    Parameters
        extent [1]: length of the input's side, >= 1
        kernel_extent [1]: length of the kernel's side, >= 1
        stride [1]: step from position to position, >= 1
        padding [1]: zeros added at either end, >= 0
    Where: extent >= kernel_extent
    Returns [1]: length of the output's side
    Source: Dumoulin and Visin, A guide to convolution arithmetic for deep learning, 2016, relation 6, https://arxiv.org/abs/1603.07285
    Leaves out: dilation

    >>> float(convolved_extent(224, 7, 2, 3))  # the first layer of ResNet-50
    112.0
    """
    positions = np.floor(ratio(1.0 * extent + 2.0 * padding - kernel_extent, 1.0 * stride)) + 1.0
    return inside(positions, extent >= 1, kernel_extent >= 1, stride >= 1, padding >= 0, extent >= kernel_extent)


def indexer(batch, seq_len, key_length, index_n_heads, index_head_dim):
    """Scores of an indexer that picks the keys of sparse attention: ``b s key_length n (2 d + 2)``, its heads' products and their sum.

    Parameters
        batch [1]: sequences, >= 0
        seq_len [token]: queries of a sequence, >= 0
        key_length [token]: keys that are scored for a query: attended_length of the whole sequence, >= 0
        index_n_heads [1]: heads n of the indexer, >= 0
        index_head_dim [1]: width d of one of them, >= 0
    Offset [1]: a product of width d, and the sum over heads
    Factor [FLOP/token/token]: 2 for each multiply-add
    Returns [FLOP]: operations
    Source: DeepSeek-AI, DeepSeek-V3.2, 2025, section 2.1, equation 1, https://arxiv.org/abs/2512.02556
    Leaves out: ReLU, the choice of the largest, the rotation of queries and keys

    >>> float(indexer(1, 1, 65536, 64, 128)) / float(attention_core(1, 1, 65536, 128, 160))  # of DeepSeek-V3's full attention
    0.2015625
    """
    flop = 1.0 * batch * seq_len * key_length * index_n_heads * (2.0 * index_head_dim + 2.0)
    return inside(flop, batch >= 0, seq_len >= 0, key_length >= 0, index_n_heads >= 0, index_head_dim >= 0)


def attention_core(batch, seq_len, key_length, num_attention_heads, head_dim):
    """Forward pass of the attention core, ``Q K^T`` and ``P V``: ``4 b s key_length a d``.

    Parameters
        batch [1]: sequences, >= 0
        seq_len [token]: queries of a sequence, >= 0
        key_length [token]: keys of a query: seq_len for the full square, attended_length for a causal mask, >= 0
        num_attention_heads [1]: query heads a, >= 0
        head_dim [1]: width d of a head, >= 0
    Factor [FLOP/token/token]: 2 multiply-adds of 2 FLOP for each pair of query and key
    Returns [FLOP]: operations
    Source: Dao, FlashAttention-2, 2023, section 4.1, https://arxiv.org/abs/2307.08691
    Leaves out: the softmax; a value width that differs from head_dim (MLA)

    >>> float(attention_core(32, 1024, 1024, 25, 64))  # GPT-2 XL: twice the training chapter's score product
    214748364800.0
    """
    flop = 4.0 * batch * seq_len * key_length * num_attention_heads * head_dim
    return inside(flop, batch >= 0, seq_len >= 0, key_length >= 0, num_attention_heads >= 0, head_dim >= 0)


def mamba_scan(batch, seq_len, mamba_num_heads, mamba_head_dim, ssm_state_size, chunk, mamba_n_groups=None):
    """Forward pass of Mamba-2's state-space core in chunks: ``2 b s (q n g + q p a + 2 n p a) + 2 b (s / q) n p a``.

    Within a chunk of q tokens the scores C B^T, once for each group g, and their product with x for each of the a heads, both as
    full squares; then the chunk's state, what earlier states add to each token, and the pass of states from chunk to chunk.

    Parameters
        batch [1]: sequences, >= 0
        seq_len [token]: tokens s of a sequence, >= 0
        mamba_num_heads [1]: heads a, >= 0
        mamba_head_dim [1]: width p of a head, >= 0
        ssm_state_size [1]: states n of each channel, >= 0
        chunk [token]: tokens q of a chunk, > 0
        mamba_n_groups [1]: groups g of heads that share B and C; left out: as many as heads, as in the source, >= 0
    Offset [token]: inside a chunk work goes with pairs of tokens, between chunks with tokens
    Factor [FLOP]: 2 for each multiply-add
    Returns [FLOP]: operations
    Source: Dao and Gu, Mamba-2, ICML 2024, section 6.3 (cost of each step), https://arxiv.org/abs/2405.21060
    Leaves out: projections, the convolution, the gated norm, decays; blocks above the diagonal that a kernel skips

    >>> float(mamba_scan(1, 256, 1, 64, 64, 64)) / 2 / 64**3  # q = n = p: a batched product of 64 cubed each, four a chunk, and a pass
    16.0625
    """
    groups = mamba_num_heads if mamba_n_groups is None else mamba_n_groups
    width = 1.0 * mamba_num_heads * mamba_head_dim
    scores = 1.0 * chunk * ssm_state_size * groups
    per_token = scores + width * chunk + 2.0 * width * ssm_state_size
    chunks = ratio(1.0 * seq_len, chunk)
    return inside(
        2.0 * batch * (seq_len * per_token + chunks * width * ssm_state_size),
        batch >= 0,
        seq_len >= 0,
        mamba_num_heads >= 0,
        mamba_head_dim >= 0,
        ssm_state_size >= 0,
        chunk > 0,
        groups >= 0,
    )


def delta_rule_scan(batch, seq_len, linear_num_value_heads, linear_key_head_dim, linear_value_head_dim, chunk):
    """Forward pass of the gated delta rule in chunks: ``b s v (2 c (3 d + 2 e) + 6 d e + c c / 3)``.

    With chunks of c tokens, v value heads, keys of width d and values of width e. Within a chunk, as full squares: K K^T, the inverse
    of a triangle (c^3 / 3), its products with keys and with values, Q K^T and its product with the new values. Between chunks: what
    the state holds for the keys and for the queries, and the state's update.

    Parameters
        batch [1]: sequences, >= 0
        seq_len [token]: tokens s of a sequence, >= 0
        linear_num_value_heads [1]: heads v of values, each with its state; queries and keys are repeated for them, >= 0
        linear_key_head_dim [1]: width d of a query or key, >= 0
        linear_value_head_dim [1]: width e of a value, >= 0
        chunk [token]: tokens c of a chunk, > 0
    Offset [token]: inside a chunk work goes with pairs of tokens, between chunks with tokens
    Factor [FLOP]: 2 for each multiply-add
    Returns [FLOP]: operations
    Source: Yang et al., Gated Delta Networks, ICLR 2025, section 3.3 (the chunkwise form), https://arxiv.org/abs/2412.06464
    Leaves out: projections, the convolution, the gated norm, decays; blocks above the diagonal that a kernel skips

    >>> float(delta_rule_scan(1, 192, 1, 96, 96, 96)) / 96**3  # c = d = e: eight products of 2 * 96 cubed each and one third, two chunks
    32.666666666666664
    """
    keys, values = 1.0 * linear_key_head_dim, 1.0 * linear_value_head_dim
    per_token = 2.0 * chunk * (3.0 * keys + 2.0 * values) + 6.0 * keys * values + 1.0 * chunk * chunk / 3.0
    return inside(
        1.0 * batch * seq_len * linear_num_value_heads * per_token,
        batch >= 0,
        seq_len >= 0,
        linear_num_value_heads >= 0,
        linear_key_head_dim >= 0,
        linear_value_head_dim >= 0,
        chunk > 0,
    )


def dense_layer_forward(
    batch, seq_len, key_length, hidden_size, intermediate_size, num_attention_heads, num_key_value_heads, head_dim, gated_mlp
):
    """Forward pass of one dense layer: ``2 b s (2 h d (a + kv) + (2 + gated) h f) + 4 b s key_length a d``.

    Parameters
        batch [1]: sequences, >= 0
        seq_len [token]: tokens of a sequence, >= 0
        key_length [token]: keys of a query: seq_len for the full square, attended_length for a causal mask, >= 0
        hidden_size [1]: width h of the residual stream, >= 0
        intermediate_size [1]: inner width f of the feed-forward block, >= 0
        num_attention_heads [1]: query heads a, >= 0
        num_key_value_heads [1]: key and value heads kv, >= 0
        head_dim [1]: width d of a head, >= 0
        gated_mlp [1]: 1 when the feed-forward block has a gate matrix, 0 or 1
    Offset [token]: projections go with tokens, the attention core with pairs of tokens
    Factor [FLOP]: 2 for each multiply-add
    Returns [FLOP]: operations
    Source: Narayanan et al., Megatron-LM, SC 2021, appendix, https://arxiv.org/abs/2104.04473
    Leaves out: norms, activations and softmax; the output head

    >>> float(dense_layer_forward(32, 1024, 1024, 1600, 6400, 25, 25, 64, 0)) * 48 * 3  # 320.8 TFLOP in the training chapter
    320834057011200.0
    """
    projections = 2.0 * hidden_size * head_dim * (1.0 * num_attention_heads + num_key_value_heads)
    feed_forward = (2.0 + gated_mlp) * hidden_size * intermediate_size
    core = 4.0 * batch * seq_len * key_length * num_attention_heads * head_dim
    return inside(
        2.0 * batch * seq_len * (projections + feed_forward) + core,
        batch >= 0,
        seq_len >= 0,
        key_length >= 0,
        hidden_size >= 0,
        intermediate_size >= 0,
        num_attention_heads >= 0,
        num_key_value_heads >= 0,
        head_dim >= 0,
        flag(gated_mlp),
    )


def model_per_token(matmul_parameters, num_hidden_layers, attention_width, key_length):
    """Model FLOP of training one token, its attention over k keys: ``6 P + 12 L w k``.

    With the keys that a query sees it is what ``mfu`` counts, with all tokens of the sequence what ``mfu_full_square`` counts.

    Parameters
        matmul_parameters [1]: parameters P that multiply each token, >= 0
        num_hidden_layers [1]: layers L, >= 0
        attention_width [1]: w = num_attention_heads head_dim, >= 0
        key_length [token]: keys k of a query: seq_len for the full square, attended_length for a causal mask, >= 0
    Offset [token]: the first term does not depend on the length
    Factor [FLOP/token]: forward 2, backward 4 for each multiply-add
    Returns [FLOP/token]: operations for one token, no recompute
    Source: Chowdhery et al., PaLM, 2022, appendix B, https://arxiv.org/abs/2204.02311 (all keys);
        Dao, FlashAttention-2, 2023, section 4.1 (a causal mask leaves half), https://arxiv.org/abs/2307.08691
    Leaves out: norms, activations, softmax, the optimizer, recompute

    >>> float(model_per_token(70e9, 80, 8192, 4096)) / 6 / 70e9  # the full square adds 8 % (errata E001-10), a causal mask half of it
    1.0766958445714285
    """
    flop = 6.0 * matmul_parameters + 12.0 * num_hidden_layers * attention_width * key_length
    return inside(flop, matmul_parameters >= 0, num_hidden_layers >= 0, attention_width >= 0, key_length >= 0)


def per_token(parameters):
    """Training FLOP of one token without attention: ``6 N``.

    Parameters
        parameters [1]: parameters N of the model (active ones of a mixture), >= 0
    Factor [FLOP/token]: forward 2, backward 4 for each parameter
    Returns [FLOP/token]: operations for one token
    Source: Kaplan et al., Scaling Laws, 2020, section 2.1, https://arxiv.org/abs/2001.08361
    Leaves out: attention scores, which add 12 L w s; that embeddings multiply nothing

    >>> float(per_token(70e9))  # worked in the estimation exercises
    420000000000.0
    """
    return inside(6.0 * parameters, parameters >= 0)


def forward_per_token(parameters):
    """Forward FLOP of one token without attention: ``2 N``.

    Parameters
        parameters [1]: parameters N of the model (active ones of a mixture), >= 0
    Factor [FLOP/token]: 2 for each parameter
    Returns [FLOP/token]: operations for one token
    Source: Kaplan et al., Scaling Laws, 2020, section 2.1, https://arxiv.org/abs/2001.08361
    Leaves out: attention scores; that embeddings multiply nothing

    >>> float(forward_per_token(70e9))  # worked in the estimation exercises
    140000000000.0
    """
    return inside(2.0 * parameters, parameters >= 0)


def backward_per_token(parameters):
    """Backward FLOP of one token without attention, gradients of inputs and of weights: ``4 N``.

    Parameters
        parameters [1]: parameters N of the model (active ones of a mixture), >= 0
    Factor [FLOP/token]: 4 for each parameter
    Returns [FLOP/token]: operations for one token
    Source: Kaplan et al., Scaling Laws, 2020, section 2.1, https://arxiv.org/abs/2001.08361
    Leaves out: attention scores, recompute; frozen parameters

    >>> float(backward_per_token(70e9))  # worked in the estimation exercises
    280000000000.0
    """
    return inside(4.0 * parameters, parameters >= 0)


def training(parameters, tokens):
    """FLOP of a whole training run without attention: ``6 N D``.

    Parameters
        parameters [1]: parameters N of the model (active ones of a mixture), >= 0
        tokens [token]: tokens D seen, >= 0
    Factor [FLOP/token]: forward 2, backward 4 for each parameter
    Returns [FLOP]: operations
    Source: Kaplan et al., Scaling Laws, 2020, section 2.1, https://arxiv.org/abs/2001.08361
    Leaves out: attention scores, recompute, evaluation runs

    >>> float(training(70e9, 2e12))  # Llama 2 70B on 2 T tokens; worked in the training chapter
    8.4e+23
    """
    return inside(6.0 * parameters * tokens, parameters >= 0, tokens >= 0)
