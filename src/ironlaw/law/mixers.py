"""How many parameters a layer holds that mixes tokens by a state instead of attention: Mamba-2 and the gated delta rule.

``parameters`` offers these laws too. A size that is zero, negative, infinite or nan gives nan.
"""

from __future__ import annotations

from ironlaw.law._domain import floats, on_domain


def mamba(hidden_size, mamba_num_heads, mamba_head_dim, ssm_state_size, mamba_n_groups, conv_kernel):
    """Mixer of a Mamba-2 layer: ``mamba_matmul + (a p + 2 g n) (c + 1) + 3 a + a p``, without the norm in front of it.

    With a = mamba_num_heads, p = mamba_head_dim, n = ssm_state_size, g = mamba_n_groups, c = conv_kernel: the causal convolution
    over x, B and C with its bias, a decay, a skip and a step bias for each head, and the gated norm before the output.

    Parameters
        hidden_size [1] > 0            width of the residual stream
        mamba_num_heads [1] > 0        heads
        mamba_head_dim [1] > 0         width of one head
        ssm_state_size [1] > 0         states of each channel
        mamba_n_groups [1] > 0         groups of heads that share B and C
        conv_kernel [1] > 0            tokens the convolution covers
    Returns      ndarray, parameters [parameter], shape of the broadcast inputs
    Source:      Dao and Gu, Transformers are SSMs (Mamba-2), ICML 2024, section 7 and figure 6, https://arxiv.org/abs/2405.21060
    Leaves out:  biases of the projections; a convolution without bias; Mamba-1
    >>> 64 * (float(mamba(2560, 80, 64, 128, 1, 4)) + 2560) + 50288 * 2560 + 2560  # Mamba-2 2.7B: layers, norms, tied table
    2702599680.0
    """
    heads, head_dim, states, groups, kernel = floats(mamba_num_heads, mamba_head_dim, ssm_state_size, mamba_n_groups, conv_kernel)
    matrices = mamba_matmul(hidden_size, mamba_num_heads, mamba_head_dim, ssm_state_size, mamba_n_groups)
    inner = heads * head_dim
    value = matrices + (inner + 2.0 * groups * states) * (kernel + 1.0) + 3.0 * heads + inner
    return on_domain(value, (heads, head_dim, states, groups, kernel), ())


def mamba_matmul(hidden_size, mamba_num_heads, mamba_head_dim, ssm_state_size, mamba_n_groups):
    """Projections of a Mamba-2 layer: ``h (2 a p + 2 g n + a) + a p h``, to gate, x, B, C and steps, and back.

    With h = hidden_size, a = mamba_num_heads, p = mamba_head_dim, n = ssm_state_size, g = mamba_n_groups.

    Parameters
        hidden_size [1] > 0            width of the residual stream
        mamba_num_heads [1] > 0        heads
        mamba_head_dim [1] > 0         width of one head
        ssm_state_size [1] > 0         states of each channel
        mamba_n_groups [1] > 0         groups of heads that share B and C
    Returns      ndarray, parameters [parameter], shape of the broadcast inputs
    Source:      Dao and Gu, Transformers are SSMs (Mamba-2), ICML 2024, section 7 and figure 6, https://arxiv.org/abs/2405.21060
    Leaves out:  the convolution, the norm, what a head holds (decay, skip, step bias)
    >>> float(mamba_matmul(2560, 80, 64, 128, 1))  # a layer of Mamba-2 2.7B: 2560 x 10576 and 5120 x 2560
    40181760.0
    """
    hidden_size, heads, head_dim = floats(hidden_size, mamba_num_heads, mamba_head_dim)
    states, groups = floats(ssm_state_size, mamba_n_groups)
    inner = heads * head_dim
    value = hidden_size * (2.0 * inner + 2.0 * groups * states + heads) + inner * hidden_size
    return on_domain(value, (hidden_size, heads, head_dim, states, groups), ())


def linear_attention(
    hidden_size, linear_num_key_heads, linear_num_value_heads, linear_key_head_dim, linear_value_head_dim, linear_conv_kernel_dim
):
    """Gated delta rule of one layer: ``linear_attention_matmul + (2 k d + v e) c + 2 v + e``, without the norm in front of it.

    With k, v = linear_num_key_heads, linear_num_value_heads; d, e = linear_key_head_dim, linear_value_head_dim;
    c = linear_conv_kernel_dim: the convolution over q, k and v, a decay and a step bias for each value head, the gated norm that
    the heads share.

    Parameters
        hidden_size [1] > 0              width of the residual stream
        linear_num_key_heads [1] > 0     heads of queries and of keys
        linear_num_value_heads [1] > 0   heads of values, as many as there are states
        linear_key_head_dim [1] > 0      width of one query or key
        linear_value_head_dim [1] > 0    width of one value
        linear_conv_kernel_dim [1] > 0   tokens the convolution covers
    Returns      ndarray, parameters [parameter], shape of the broadcast inputs
    Source:      Yang, Kautz and Hatamizadeh, Gated Delta Networks, ICLR 2025, section 3.4, https://arxiv.org/abs/2412.06464; matrix
                 by matrix as Qwen3-Next stores them, huggingface/transformers, modeling_qwen3_next.py, Qwen3NextGatedDeltaNet
    Leaves out:  biases, a gate of low rank (Kimi Delta Attention)
    >>> float(linear_attention(2048, 16, 32, 128, 128, 4))  # a layer of Qwen3-Next 80B A3B
    33718464.0
    """
    key_heads, value_heads, kernel = floats(linear_num_key_heads, linear_num_value_heads, linear_conv_kernel_dim)
    key_dim, value_dim = floats(linear_key_head_dim, linear_value_head_dim)
    matrices = linear_attention_matmul(
        hidden_size, linear_num_key_heads, linear_num_value_heads, linear_key_head_dim, linear_value_head_dim
    )
    convolution = (2.0 * key_heads * key_dim + value_heads * value_dim) * kernel
    return on_domain(matrices + convolution + 2.0 * value_heads + value_dim, (kernel,), ())


def linear_attention_matmul(hidden_size, linear_num_key_heads, linear_num_value_heads, linear_key_head_dim, linear_value_head_dim):
    """Projections of a gated delta rule: ``h (2 k d + 2 v e + 2 v) + v e h``, to q, k, v, gate, beta and decay, and back.

    With h = hidden_size; k, v = linear_num_key_heads, linear_num_value_heads; d, e = linear_key_head_dim, linear_value_head_dim.

    Parameters
        hidden_size [1] > 0              width of the residual stream
        linear_num_key_heads [1] > 0     heads of queries and of keys
        linear_num_value_heads [1] > 0   heads of values
        linear_key_head_dim [1] > 0      width of one query or key
        linear_value_head_dim [1] > 0    width of one value
    Returns      ndarray, parameters [parameter], shape of the broadcast inputs
    Source:      Yang, Kautz and Hatamizadeh, Gated Delta Networks, ICLR 2025, section 3.4, https://arxiv.org/abs/2412.06464; matrix
                 by matrix as Qwen3-Next stores them, huggingface/transformers, modeling_qwen3_next.py, Qwen3NextGatedDeltaNet
    Leaves out:  the convolution, the norm, what a head holds (decay, step bias)
    >>> float(linear_attention_matmul(2048, 16, 32, 128, 128))  # Qwen3-Next 80B A3B: 2048 x 12288, 2048 x 64, 4096 x 2048
    33685504.0
    """
    hidden_size, key_heads, value_heads = floats(hidden_size, linear_num_key_heads, linear_num_value_heads)
    key_dim, value_dim = floats(linear_key_head_dim, linear_value_head_dim)
    keys, values = key_heads * key_dim, value_heads * value_dim
    value = hidden_size * (2.0 * keys + 2.0 * values + 2.0 * value_heads) + values * hidden_size
    return on_domain(value, (hidden_size, key_heads, value_heads, key_dim, value_dim), ())
