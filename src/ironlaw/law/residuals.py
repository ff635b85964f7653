"""What takes the place of plain residual additions: hyper-connections, attention over residuals, per-layer embeddings.

Hyper-connections keep several residual streams: before a block the streams are summed to one by learned weights of the token, behind
it they are mixed by a matrix and the block's output is added to each (manifold-constrained: the matrix is made doubly stochastic).
Attention residuals give each block a weighted sum of the sums of earlier groups of layers. A size outside its domain gives nan.
"""

from __future__ import annotations

from ironlaw.law._domain import inside


def hyper_connection(hidden_size, hc_mult):
    """Hyper-connections of one block: ``(2 + n) n (n h + 1) + 3``, a projection of all streams, its bias, three scales.

    Parameters
        hidden_size [1]: width h of a residual stream, > 0
        hc_mult [1]: streams n, > 0
    Returns [1]: parameters
    Source: huggingface/transformers, modeling_deepseek_v4.py, DeepseekV4HyperConnection (fn, base, scale),
        https://github.com/huggingface/transformers/blob/main/src/transformers/models/deepseek_v4/modular_deepseek_v4.py
    Leaves out: the sum of streams before the output layer (hyper_head)

    >>> float(hyper_connection(4096, 4))  # one of the two of a layer of DeepSeek-V4-Flash: 24 x 16384, 24 and 3
    393243.0
    """
    return inside((2.0 + hc_mult) * hc_mult * (1.0 * hc_mult * hidden_size + 1.0) + 3.0, hidden_size > 0, hc_mult > 0)


def hyper_connection_matmul(hidden_size, hc_mult):
    """Weights of one block's hyper-connections that multiply each token: ``(2 + n) n n h``.

    Parameters
        hidden_size [1]: width h of a residual stream, > 0
        hc_mult [1]: streams n, > 0
    Returns [1]: parameters
    Source: huggingface/transformers, modeling_deepseek_v4.py, DeepseekV4HyperConnection,
        https://github.com/huggingface/transformers/blob/main/src/transformers/models/deepseek_v4/modular_deepseek_v4.py
    Leaves out: the mixing of streams, which has n (n + 2) multiply-adds a channel and no weights

    >>> float(hyper_connection_matmul(4096, 4))
    393216.0
    """
    return inside((2.0 + hc_mult) * hc_mult * hc_mult * 1.0 * hidden_size, hidden_size > 0, hc_mult > 0)


def hyper_head(hidden_size, hc_mult):
    """The sum of streams before the output layer: ``n (n h + 1) + 1``.

    Parameters
        hidden_size [1]: width h of a residual stream, > 0
        hc_mult [1]: streams n, > 0
    Returns [1]: parameters
    Source: huggingface/transformers, modeling_deepseek_v4.py, DeepseekV4HyperHead,
        https://github.com/huggingface/transformers/blob/main/src/transformers/models/deepseek_v4/modular_deepseek_v4.py
    Leaves out: nothing

    >>> float(hyper_head(4096, 4))
    65541.0
    """
    return inside(1.0 * hc_mult * (1.0 * hc_mult * hidden_size + 1.0) + 1.0, hidden_size > 0, hc_mult > 0)


def hyper_connection_traffic(tokens, hidden_size, hc_mult, bytes_per_element):
    """Traffic of one block's hyper-connections, forward: ``t h e (3 n + 2)``, beside the product that makes the coefficients.

    The sum before the block reads n streams and writes 1; the mix behind it, one fused kernel, reads n + 1 and writes n. The product of
    the coefficients reads n more, so that a block moves 4 n + 2 in all. A plain residual addition moves 3.

    Parameters
        tokens [token]: tokens t, >= 0
        hidden_size [1]: width h of a residual stream, >= 0
        hc_mult [1]: streams n, > 0
        bytes_per_element [B]: element e, >= 0
    Factor [1/token]: times a token's streams are read or written
    Returns [B]: bytes moved
    Source: Xie et al., mHC: Manifold-Constrained Hyper-Connections, 2025, table 2 and section 4.3.1 (fused: behind the block (n + 1) C
        read and n C written), https://arxiv.org/abs/2512.24880
    Leaves out: the n (n + 2) coefficients of a token and the steps that make the matrix doubly stochastic, which stay on chip

    >>> float(hyper_connection_traffic(1, 1, 4, 1)) + 4, 3  # elements of a channel: four streams and their product, a plain addition
    (18.0, 3)
    """
    value = 1.0 * tokens * hidden_size * (3.0 * hc_mult + 2.0) * bytes_per_element
    return inside(value, tokens >= 0, hidden_size >= 0, hc_mult > 0, bytes_per_element >= 0)


def hyper_connection_traffic_backward(tokens, hidden_size, hc_mult, bytes_per_element):
    """Traffic of one block's hyper-connections, backward: ``t h e (4 n + 3)``, beside the products of the coefficients.

    Read: the streams, their gradients from behind, the gradient from the coefficients (n each), the block's output and the gradient of
    its input. Written: the gradients of the streams (n) and of the block's output.

    Parameters
        tokens [token]: tokens t, >= 0
        hidden_size [1]: width h of a residual stream, >= 0
        hc_mult [1]: streams n, > 0
        bytes_per_element [B]: element e, >= 0
    Factor [1/token]: times a token's streams are read or written
    Returns [B]: bytes moved
    Source: count of the tensors of Xie et al., mHC, 2025, equation 3, with one fused kernel on either side of the block,
        https://arxiv.org/abs/2512.24880
    Leaves out: coefficients and their gradients

    >>> float(hyper_connection_traffic_backward(1, 1, 4, 1))
    19.0
    """
    value = 1.0 * tokens * hidden_size * (4.0 * hc_mult + 3.0) * bytes_per_element
    return inside(value, tokens >= 0, hidden_size >= 0, hc_mult > 0, bytes_per_element >= 0)


def attention_residual(hidden_size):
    """Attention residuals of one block: ``2 h``, a query and the norm of what it is compared with.

    Parameters
        hidden_size [1]: width h of the residual stream, > 0
    Returns [1]: parameters
    Source: Kimi Team, Attention Residuals, 2026, https://arxiv.org/abs/2603.15031; tensors of Kimi K3's checkpoint
        (self_attention_res_proj [1, 7168], self_attention_res_norm [7168])
    Leaves out: nothing

    >>> float(attention_residual(7168))
    14336.0
    """
    return inside(2.0 * hidden_size, hidden_size > 0)


def attention_residual_traffic(tokens, hidden_size, sources, bytes_per_element):
    """Traffic of one block's attention residuals, forward: ``t h e (s + 1)``, s sources read and their weighted sum written.

    Parameters
        tokens [token]: tokens t, >= 0
        hidden_size [1]: width h of the residual stream, >= 0
        sources [1]: sums of earlier layers s that a block attends to, > 0
        bytes_per_element [B]: element e, >= 0
    Factor [1/token]: times a token's streams are read or written
    Returns [B]: bytes moved
    Source: Kimi Team, Attention Residuals, 2026, equations 8 to 10, https://arxiv.org/abs/2603.15031, as one kernel that keeps a token's
        sources on chip (assumed: the kernels of the training stack are not public)
    Leaves out: the scores, one a source and token; the addition to the sum of the group

    >>> float(attention_residual_traffic(1, 1, 5, 1))
    6.0
    """
    value = 1.0 * tokens * hidden_size * (1.0 * sources + 1.0) * bytes_per_element
    return inside(value, tokens >= 0, hidden_size >= 0, sources > 0, bytes_per_element >= 0)


def per_layer_embedding(hidden_size, hidden_size_per_layer_input):
    """What one layer holds to add its second embedding: ``2 h p + h``, a gate down, a projection up, and a norm.

    Parameters
        hidden_size [1]: width h of the residual stream, > 0
        hidden_size_per_layer_input [1]: width p of a layer's second embedding, > 0
    Returns [1]: parameters
    Source: huggingface/transformers, modeling_gemma3n.py, Gemma3nTextDecoderLayer (per_layer_input_gate, per_layer_projection),
        https://github.com/huggingface/transformers/blob/main/src/transformers/models/gemma3n/modeling_gemma3n.py
    Leaves out: the tables of all layers, see per_layer_tables

    >>> float(per_layer_embedding(1536, 256))
    787968.0
    """
    value = 2.0 * hidden_size * hidden_size_per_layer_input + hidden_size
    return inside(value, hidden_size > 0, hidden_size_per_layer_input > 0)


def per_layer_tables(hidden_size, num_hidden_layers, hidden_size_per_layer_input, vocab_size_per_layer_input):
    """The second embedding of all layers: ``L p (v + h) + p``, a table, a projection of the first embedding, and its norm.

    Parameters
        hidden_size [1]: width h of the residual stream, > 0
        num_hidden_layers [1]: layers L, > 0
        hidden_size_per_layer_input [1]: width p of a layer's second embedding, > 0
        vocab_size_per_layer_input [1]: rows v of the table, > 0
    Returns [1]: parameters
    Source: huggingface/transformers, modeling_gemma3n.py, Gemma3nTextModel (embed_tokens_per_layer, per_layer_model_projection),
        https://github.com/huggingface/transformers/blob/main/src/transformers/models/gemma3n/modeling_gemma3n.py
    Leaves out: what each layer holds, see per_layer_embedding

    >>> float(per_layer_tables(1536, 35, 256, 262144))
    2362573056.0
    """
    width = 1.0 * num_hidden_layers * hidden_size_per_layer_input
    value = width * (1.0 * vocab_size_per_layer_input + hidden_size) + hidden_size_per_layer_input
    return inside(value, hidden_size > 0, num_hidden_layers > 0, hidden_size_per_layer_input > 0, vocab_size_per_layer_input > 0)
