"""How many parameters a layer holds that mixes tokens by a state: Mamba, the gated delta rule, Kimi Delta and lightning attention.

``parameters`` offers these laws too. A size that is zero, negative, infinite or nan gives nan.
"""

from __future__ import annotations

import numpy as np

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


def kimi_delta(hidden_size, linear_num_value_heads, linear_key_head_dim, linear_conv_kernel_dim, linear_gate_rank):
    """Kimi Delta Attention of one layer: ``kimi_delta_matmul + 3 a d c + a d + a + d``, without the norm in front of it.

    With a = linear_num_value_heads, d = linear_key_head_dim, c = linear_conv_kernel_dim: the convolutions over q, k and v, a step bias
    for each channel, a decay for each head, and the gated norm that the heads share.

    Parameters
        hidden_size [1] > 0              width of the residual stream
        linear_num_value_heads [1] > 0   heads of queries, of keys and of values
        linear_key_head_dim [1] > 0      width of one query, key or value
        linear_conv_kernel_dim [1] > 0   tokens the convolution covers
        linear_gate_rank [1] >= 0        rank of the output gate; 0: full
    Returns      ndarray, parameters [parameter], shape of the broadcast inputs
    Source:      Kimi Team, Kimi Linear, 2025, section 4, https://arxiv.org/abs/2510.26692; matrix by matrix as Kimi-Linear stores them,
                 vllm/model_executor/layers/kda.py, https://github.com/vllm-project/vllm
    Leaves out:  biases of the projections
    >>> float(kimi_delta(7168, 96, 128, 4, 0))  # a layer of Kimi K3
    443740384.0
    """
    heads, width, kernel = floats(linear_num_value_heads, linear_key_head_dim, linear_conv_kernel_dim)
    matrices = kimi_delta_matmul(hidden_size, linear_num_value_heads, linear_key_head_dim, linear_gate_rank)
    return on_domain(matrices + heads * width * (3.0 * kernel + 1.0) + heads + width, (kernel,), ())


def kimi_delta_matmul(hidden_size, linear_num_value_heads, linear_key_head_dim, linear_gate_rank):
    """Projections of Kimi Delta Attention: ``4 h a d + (h + a d) d + h a + gate``, where the gate has ``h a d``, or ``(h + a d) r``.

    With h = hidden_size, a = linear_num_value_heads, d = linear_key_head_dim, r = linear_gate_rank: queries, keys, values and output;
    the decay of each channel through a latent as wide as a head; a step for each head.

    Parameters
        hidden_size [1] > 0              width of the residual stream
        linear_num_value_heads [1] > 0   heads of queries, of keys and of values
        linear_key_head_dim [1] > 0      width of one query, key or value
        linear_gate_rank [1] >= 0        rank of the output gate; 0: full
    Returns      ndarray, parameters [parameter], shape of the broadcast inputs
    Source:      Kimi Team, Kimi Linear, 2025, section 4, https://arxiv.org/abs/2510.26692; matrix by matrix as Kimi-Linear stores them,
                 vllm/model_executor/layers/kda.py, https://github.com/vllm-project/vllm
    Leaves out:  the convolution, the norm, what a head holds
    >>> float(kimi_delta_matmul(2304, 32, 128, 128))  # a layer of Kimi-Linear 48B-A3B
    39460864.0
    """
    hidden_size, heads, width, rank = floats(hidden_size, linear_num_value_heads, linear_key_head_dim, linear_gate_rank)
    inner = heads * width
    gate = np.where(rank > 0.0, (hidden_size + inner) * rank, hidden_size * inner)
    value = 4.0 * hidden_size * inner + (hidden_size + inner) * width + hidden_size * heads + gate
    return on_domain(np.where(rank >= 0.0, value, np.nan), (hidden_size, heads, width), ())


def lightning(hidden_size, linear_num_value_heads, linear_key_head_dim):
    """Lightning attention of one layer: ``5 h a d + a d``, queries, keys, values, a gate and the output, and the norm of the heads.

    Parameters
        hidden_size [1] > 0              width h of the residual stream
        linear_num_value_heads [1] > 0   heads a of queries, of keys and of values
        linear_key_head_dim [1] > 0      width d of one query, key or value
    Returns      ndarray, parameters [parameter], shape of the broadcast inputs
    Source:      MiniMax, MiniMax-01, 2025, section 2.2, https://arxiv.org/abs/2501.08313; matrix by matrix as MiniMax-Text-01 stores them,
                 huggingface/transformers, modeling_minimax.py, MiniMaxLightningAttention
    Leaves out:  decays, which are fixed numbers of a head and layer
    >>> float(lightning(6144, 64, 128))  # a layer of MiniMax-Text-01
    251666432.0
    """
    hidden_size, heads, width = floats(hidden_size, linear_num_value_heads, linear_key_head_dim)
    return on_domain(5.0 * hidden_size * heads * width + heads * width, (hidden_size, heads, width), ())


def short_convolution(hidden_size, conv_kernel):
    """Gated short convolution of one layer: ``4 h h + h c``, three projections in, one out, and a filter for each channel.

    Parameters
        hidden_size [1] > 0    width h of the residual stream, and channels
        conv_kernel [1] > 0    tokens c the convolution covers
    Returns      ndarray, parameters [parameter], shape of the broadcast inputs
    Source:      Liquid AI, LFM2, 2025, matrix by matrix as huggingface/transformers stores it, modeling_lfm2.py, Lfm2ShortConv,
                 https://github.com/huggingface/transformers (read 2026-11-27)
    Leaves out:  biases of the projections and of the convolution
    >>> float(short_convolution(2048, 3))  # a layer of LFM2 1.2B: 2048 x 6144, 2048 x 2048, 2048 x 3
    16783360.0
    """
    hidden_size, kernel = floats(hidden_size, conv_kernel)
    return on_domain(4.0 * hidden_size * hidden_size + hidden_size * kernel, (hidden_size, kernel), ())


def mamba_1(hidden_size, mamba_intermediate_size, ssm_state_size, time_step_rank, conv_kernel, mamba_norms):
    """Mixer of a Mamba-1 layer: ``mamba_1_matmul + i (c + 1) + i + i n + i + mamba_norms (r + 2 n)``, without the norm in front of it.

    With i = mamba_intermediate_size, n = ssm_state_size, c = conv_kernel, r = time_step_rank: the convolution with its bias, the bias of
    the steps, a decay for each state of each channel, a skip; with ``mamba_norms`` also weights of the norms of steps, B and C.

    Parameters
        hidden_size [1] > 0               width of the residual stream
        mamba_intermediate_size [1] > 0   channels
        ssm_state_size [1] > 0            states of each channel
        time_step_rank [1] > 0            rank of the steps
        conv_kernel [1] > 0               tokens the convolution covers
        mamba_norms [1]                   0 or 1: steps, B and C pass norms with weights (Jamba)
    Returns      ndarray, parameters [parameter], shape of the broadcast inputs
    Source:      Gu and Dao, Mamba, 2023, section 3.4, https://arxiv.org/abs/2312.00752; matrix by matrix as in mamba_ssm,
                 mamba_simple.py, https://github.com/state-spaces/mamba
    Leaves out:  biases of the large projections
    >>> 64 * (float(mamba_1(2560, 5120, 16, 160, 4, 0)) + 2560) + 50280 * 2560 + 2560  # Mamba 2.8B: layers, norms, tied table
    2768345600.0
    """
    inner, states, rank, kernel, normed = floats(mamba_intermediate_size, ssm_state_size, time_step_rank, conv_kernel, mamba_norms)
    matrices = mamba_1_matmul(hidden_size, mamba_intermediate_size, ssm_state_size, time_step_rank)
    value = matrices + inner * (kernel + 1.0) + inner + inner * states + inner + normed * (rank + 2.0 * states)
    return on_domain(value, (kernel,), (normed,))


def mamba_1_matmul(hidden_size, mamba_intermediate_size, ssm_state_size, time_step_rank):
    """Projections of a Mamba-1 layer: ``2 h i + i (r + 2 n) + r i + i h``, to x and the gate, to steps, B and C, of the steps, and back.

    With h = hidden_size, i = mamba_intermediate_size, n = ssm_state_size, r = time_step_rank.

    Parameters
        hidden_size [1] > 0               width of the residual stream
        mamba_intermediate_size [1] > 0   channels
        ssm_state_size [1] > 0            states of each channel
        time_step_rank [1] > 0            rank of the steps
    Returns      ndarray, parameters [parameter], shape of the broadcast inputs
    Source:      Gu and Dao, Mamba, 2023, section 3.4, https://arxiv.org/abs/2312.00752; matrix by matrix as in mamba_ssm,
                 mamba_simple.py, https://github.com/state-spaces/mamba
    Leaves out:  the convolution, what a channel holds (decays, skip, bias)
    >>> float(mamba_1_matmul(2560, 5120, 16, 160))
    41123840.0
    """
    hidden_size, inner, states, rank = floats(hidden_size, mamba_intermediate_size, ssm_state_size, time_step_rank)
    value = 3.0 * hidden_size * inner + inner * (rank + 2.0 * states) + rank * inner
    return on_domain(value, (hidden_size, inner, states, rank), ())
