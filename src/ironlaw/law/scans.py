"""Operations and traffic of scans of a state: Kimi Delta Attention, lightning attention, Mamba-1's selective scan.

Those of Mamba-2 and of the gated delta rule are in ``flops`` and ``traffic``.
"""

from __future__ import annotations

from ironlaw.law._domain import inside, ratio

SELECTIVE_OPERATIONS = 9.0  # of a state of a channel and a token: see selective_scan


def kimi_delta_scan(batch, seq_len, linear_num_value_heads, linear_key_head_dim, chunk):
    """Forward pass of Kimi Delta Attention in chunks: ``b s a (6 d d + 3 c d + c c)``.

    With a heads of width d and chunks of c tokens; what lies above the diagonal of a chunk is not counted.

    Parameters
        batch [1]: sequences, >= 0
        seq_len [token]: tokens s of a sequence, >= 0
        linear_num_value_heads [1]: heads a, >= 0
        linear_key_head_dim [1]: width d of a query, key or value, >= 0
        chunk [token]: tokens c of a chunk, > 0
    Offset [token]: inside a chunk work goes with pairs of tokens, between chunks with tokens
    Factor [FLOP]: 2 for each multiply-add
    Returns [FLOP]: operations
    Source: Kimi Team, Kimi Linear, 2025, section 3.3, equation 10 (6 T d^2 + 3 T C d + T C^2 for each head),
        https://arxiv.org/abs/2510.26692
    Leaves out: projections, the convolution, the gated norm

    >>> float(kimi_delta_scan(1, 65536, 1, 128, 64)) / 65536, 2 * 65536 * 128  # and causal attention of a head, 2 T T d over T tokens
    (126976.0, 16777216)
    """
    width = 1.0 * linear_key_head_dim
    per_token = 6.0 * width * width + 3.0 * chunk * width + 1.0 * chunk * chunk
    value = 1.0 * batch * seq_len * linear_num_value_heads * per_token
    return inside(value, batch >= 0, seq_len >= 0, linear_num_value_heads >= 0, linear_key_head_dim >= 0, chunk > 0)


def lightning_scan(batch, seq_len, linear_num_value_heads, linear_key_head_dim, chunk):
    """Forward pass of lightning attention in blocks: ``b s a (4 c d + 4 d d)``, a full square inside a block and the state between blocks.

    With a heads of width d and blocks of c tokens: scores and their product with values inside a block; the state's product with a query,
    and its update.

    Parameters
        batch [1]: sequences, >= 0
        seq_len [token]: tokens s of a sequence, >= 0
        linear_num_value_heads [1]: heads a, >= 0
        linear_key_head_dim [1]: width d of a query, key or value, >= 0
        chunk [token]: tokens c of a block, > 0
    Offset [token]: inside a block work goes with pairs of tokens, between blocks with tokens
    Factor [FLOP]: 2 for each multiply-add
    Returns [FLOP]: operations
    Source: Qin et al., Lightning Attention-2, 2024, algorithm 1, https://arxiv.org/abs/2401.04658
    Leaves out: projections, the norm and the gate, decays

    >>> float(lightning_scan(1, 1, 1, 128, 256))  # 4 * 256 * 128 + 4 * 128 * 128
    196608.0
    """
    width = 1.0 * linear_key_head_dim
    value = 1.0 * batch * seq_len * linear_num_value_heads * (4.0 * chunk * width + 4.0 * width * width)
    return inside(value, batch >= 0, seq_len >= 0, linear_num_value_heads >= 0, linear_key_head_dim >= 0, chunk > 0)


def lightning_traffic(batch, seq_len, linear_num_value_heads, linear_key_head_dim, chunk, bytes_per_element):
    """Traffic of lightning attention, forward: ``b s a d e (4 + 4 d / c)``: q, k, v and the output once, and states in fp32.

    Parameters
        batch [1]: sequences, >= 0
        seq_len [token]: tokens s of a sequence, >= 0
        linear_num_value_heads [1]: heads a, >= 0
        linear_key_head_dim [1]: width d of a query, key or value, >= 0
        chunk [token]: tokens c of a block, whose state is written and read, > 0
        bytes_per_element [B]: element e of queries, keys and values, >= 0
    Offset [token]: states go with blocks, the rest with tokens
    Factor [1]: times the kernels read or write each tensor
    Returns [B]: bytes moved
    Source: Qin et al., Lightning Attention-2, 2024, algorithm 1, https://arxiv.org/abs/2401.04658, with a state of 2 e bytes an element
        written and read for every block (assumed: blocks run in parallel)
    Leaves out: decays

    >>> float(lightning_traffic(1, 1, 1, 128, 256, 2))  # 128 * 2 * (4 + 2)
    1536.0
    """
    width = 1.0 * linear_key_head_dim
    per_token = width * (4.0 + 4.0 * ratio(width, 1.0 * chunk))
    value = 1.0 * batch * seq_len * linear_num_value_heads * per_token * bytes_per_element
    return inside(value, batch >= 0, seq_len >= 0, linear_num_value_heads >= 0, linear_key_head_dim >= 0, chunk > 0, bytes_per_element >= 0)


def selective_scan(batch, seq_len, mamba_intermediate_size, ssm_state_size):
    """Forward pass of Mamba-1's selective scan: ``9 b s i n``, on vector units.

    With i channels of n states: the decay's product and exponential, the input's two products, the state's multiply-add, and its product
    with C and their sum.

    Parameters
        batch [1]: sequences, >= 0
        seq_len [token]: tokens s of a sequence, >= 0
        mamba_intermediate_size [1]: channels i, >= 0
        ssm_state_size [1]: states n of each channel, >= 0
    Factor [FLOP/token]: 9 for each state of each channel and token
    Returns [FLOP]: operations
    Source: Gu and Dao, Mamba, 2023, section 3.3.2 and appendix D, https://arxiv.org/abs/2312.00752; the count of 9 as stated by its
        authors, github.com/state-spaces/mamba/issues/110
    Leaves out: the skip, the gate and softplus, one of each a channel and token

    >>> float(selective_scan(1, 1, 5120, 16))  # a token of Mamba 2.8B, one layer
    737280.0
    """
    value = SELECTIVE_OPERATIONS * batch * seq_len * mamba_intermediate_size * ssm_state_size
    return inside(value, batch >= 0, seq_len >= 0, mamba_intermediate_size >= 0, ssm_state_size >= 0)


def selective_traffic(batch, seq_len, mamba_intermediate_size, ssm_state_size, bytes_per_element):
    """Traffic of the selective scan, forward: ``b s e (4 i + 2 n)``: x, steps and gate read, the output written, B and C read.

    States stay on chip: the kernel is fused from the steps to the gate.

    Parameters
        batch [1]: sequences, >= 0
        seq_len [token]: tokens s of a sequence, >= 0
        mamba_intermediate_size [1]: channels i, >= 0
        ssm_state_size [1]: states n of each channel, >= 0
        bytes_per_element [B]: element e, >= 0
    Factor [1/token]: times the kernel reads or writes each tensor
    Returns [B]: bytes moved
    Source: Gu and Dao, Mamba, 2023, section 3.3.2 and algorithm 2 (the fused scan reads O(BLD + DN) bytes), https://arxiv.org/abs/2312.00752
    Leaves out: decays, one a state of a channel; the states at the ends of chunks

    >>> float(selective_traffic(1, 1, 5120, 16, 2))
    41024.0
    """
    value = 1.0 * batch * seq_len * bytes_per_element * (4.0 * mamba_intermediate_size + 2.0 * ssm_state_size)
    return inside(value, batch >= 0, seq_len >= 0, mamba_intermediate_size >= 0, ssm_state_size >= 0, bytes_per_element >= 0)


def kimi_delta_traffic(batch, seq_len, linear_num_value_heads, linear_key_head_dim, chunk, bytes_per_element):
    """Traffic of Kimi Delta Attention in chunks, forward: ``b s a e (19 d + 6 c + 2 d d / c)``.

    With a heads of width d, chunks of c tokens, elements of e bytes: the tensors of the gated delta rule (traffic.delta_rule_scan), and a
    decay for each channel in fp32, which three of its kernels read.

    Parameters
        batch [1]: sequences, >= 0
        seq_len [token]: tokens s of a sequence, >= 0
        linear_num_value_heads [1]: heads a, >= 0
        linear_key_head_dim [1]: width d of a query, key or value, >= 0
        chunk [token]: tokens c of a chunk, > 0
        bytes_per_element [B]: element e of queries, keys and values, >= 0
    Offset [token]: squares of a chunk go with pairs of its tokens, states with chunks, the rest with tokens
    Factor [1]: times the kernels read or write each tensor
    Returns [B]: bytes moved
    Source: flash-linear-attention, fla/ops/kda/chunk.py, chunk_kda_fwd, https://github.com/fla-org/flash-linear-attention
    Leaves out: steps, one a head and token

    >>> float(kimi_delta_traffic(1, 1, 1, 128, 64, 2))  # 19 * 128 + 6 * 64 + 512 = 3328 elements
    6656.0
    """
    width = 1.0 * linear_key_head_dim
    per_token = 19.0 * width + 6.0 * chunk + 2.0 * ratio(width * width, 1.0 * chunk)
    value = 1.0 * batch * seq_len * linear_num_value_heads * bytes_per_element * per_token
    return inside(value, batch >= 0, seq_len >= 0, linear_num_value_heads >= 0, linear_key_head_dim >= 0, chunk > 0, bytes_per_element >= 0)
