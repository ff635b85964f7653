"""Bytes that operators read from and write to the accelerator's memory (HBM)."""

from __future__ import annotations

from ironlaw.law._domain import inside, ratio


def gemm(m, n, k, bytes_a, bytes_b, bytes_c):
    """Least traffic of a matrix product, each matrix once: ``m k bytes_a + k n bytes_b + m n bytes_c``.

    Parameters
        m [1]: rows of the first matrix, >= 0
        n [1]: columns of the second matrix, >= 0
        k [1]: inner extent, >= 0
        bytes_a [B]: element of the first operand, >= 0
        bytes_b [B]: element of the second operand, >= 0
        bytes_c [B]: element of the result; twice that when it is added to, >= 0
    Returns [B]: bytes moved
    Source: NVIDIA, Matrix Multiplication Background User's Guide, "Math And Memory Bounds", https://docs.nvidia.com/deeplearning/performance/dl-performance-matrix-multiplication
    Leaves out: operands read again because the cache cannot hold a wave's panels; scale factors of fp8

    >>> float(gemm(4096, 4096, 4096, 2, 2, 2))  # worked in the bandwidth-accounting note
    100663296.0
    """
    moved = 1.0 * m * k * bytes_a + 1.0 * k * n * bytes_b + 1.0 * m * n * bytes_c
    return inside(moved, m >= 0, n >= 0, k >= 0, bytes_a >= 0, bytes_b >= 0, bytes_c >= 0)


def flash_attention(batch, seq_len, num_attention_heads, num_key_value_heads, head_dim, bytes_per_element):
    """Least traffic of fused attention, forward: ``b s (2 e d (a + kv) + 4 a)``: q, k, v in, o and logsumexp out.

    Parameters
        batch [1]: sequences, >= 0
        seq_len [token]: tokens of a sequence, >= 0
        num_attention_heads [1]: query heads a, >= 0
        num_key_value_heads [1]: key and value heads kv, >= 0
        head_dim [1]: width d of a head, >= 0
        bytes_per_element [B]: element e of q, k, v and o, >= 0
    Offset [B]: the logsumexp is 4 bytes for each head and token
    Factor [1/token]: rows of a token
    Returns [B]: bytes moved
    Source: Dao et al., FlashAttention, NeurIPS 2022, algorithm 1, https://arxiv.org/abs/2205.14135
    Leaves out: keys and values read again for every block of queries (see tiled_attention): they come from the L2 cache

    >>> float(flash_attention(1, 4096, 1, 1, 64, 2))
    2113536.0
    """
    rows = 2.0 * bytes_per_element * head_dim * (1.0 * num_attention_heads + num_key_value_heads)
    return inside(
        1.0 * batch * seq_len * (rows + 4.0 * num_attention_heads),
        batch >= 0,
        seq_len >= 0,
        num_attention_heads >= 0,
        num_key_value_heads >= 0,
        head_dim >= 0,
        bytes_per_element >= 0,
    )


def unfused_attention(batch, seq_len, num_attention_heads, head_dim, bytes_per_element, passes):
    """Traffic of attention that stores its scores: ``b s a e (s passes + 4 d)``: the scores many times, q, k, v, o once.

    Parameters
        batch [1]: sequences, >= 0
        seq_len [token]: tokens s of a sequence, >= 0
        num_attention_heads [1]: query heads a, >= 0
        head_dim [1]: width d of a head, >= 0
        bytes_per_element [B]: element e of all tensors, >= 0
        passes [1]: times the s x s scores cross HBM: 4 for write, softmax in and out, read; masks and dropout add, >= 0
    Offset [token]: scores go with pairs of tokens, the other tensors with tokens
    Returns [B]: bytes moved
    Source: Dao et al., FlashAttention, NeurIPS 2022, algorithm 0, https://arxiv.org/abs/2205.14135
    Leaves out: key and value heads fewer than query heads (counted as equal)

    >>> 4 * 4096 * 4096 * 64 / float(unfused_attention(1, 4096, 1, 64, 2, 4))  # intensity; worked in the training chapter
    31.50769230769231
    """
    moved = 1.0 * batch * seq_len * num_attention_heads * bytes_per_element * (1.0 * seq_len * passes + 4.0 * head_dim)
    return inside(moved, batch >= 0, seq_len >= 0, num_attention_heads >= 0, head_dim >= 0, bytes_per_element >= 0, passes >= 0)


def tiled_attention(seq_len, head_dim, on_chip_elements):
    """Elements one head of fused attention moves, to leading order: ``s s d d / M``.

    Parameters
        seq_len [token]: tokens s of a sequence, >= 0
        head_dim [1]: width d of a head, >= 0
        on_chip_elements [1]: elements M that on-chip memory holds, > 0
    Factor [1/token/token]: scores of a pair of tokens
    Returns [1]: elements moved between HBM and the chip
    Source: Dao et al., FlashAttention, NeurIPS 2022, theorem 2, https://arxiv.org/abs/2205.14135
    Leaves out: the constant of the bound; the L2 cache, which serves most of these reads

    >>> round(float(tiled_attention(4096, 64, 50000)), 5)  # worked in the training chapter
    1374389.53472
    """
    moved = ratio(1.0 * seq_len * seq_len * head_dim * head_dim, 1.0 * on_chip_elements)
    return inside(moved, seq_len >= 0, head_dim >= 0, on_chip_elements > 0)


def elementwise(elements, bytes_per_element, passes):
    """Traffic of operators that touch every element: ``elements bytes_per_element passes``.

    Parameters
        elements [1]: elements of the tensor, >= 0
        bytes_per_element [B]: bytes of one, >= 0
        passes [1]: times the tensor is read or written, >= 0
    Returns [B]: bytes moved
    Source: NVIDIA, Memory-Limited Layers User's Guide, https://docs.nvidia.com/deeplearning/performance/dl-performance-memory-limited
    Leaves out: cache hits between neighbouring operators; vectors such as norm weights

    >>> float(elementwise(2160 * 5120, 2, 1))  # worked in the bandwidth-accounting note
    22118400.0
    """
    moved = 1.0 * elements * bytes_per_element * passes
    return inside(moved, elements >= 0, bytes_per_element >= 0, passes >= 0)


def cast(elements, bytes_wide, bytes_narrow, scale_reads, layouts):
    """Traffic of casting a tensor to a narrow format in one go: ``elements (bytes_wide (1 + scale_reads) + bytes_narrow layouts)``.

    Parameters
        elements [1]: elements of the tensor, >= 0
        bytes_wide [B]: element as it is read, >= 0
        bytes_narrow [B]: element as it is written, its scales included, >= 0
        scale_reads [1]: times the tensor is read to find its scales before it is cast, >= 0
        layouts [1]: orientations written, by rows for one product and by columns for another, >= 0
    Returns [B]: bytes moved
    Source: NVIDIA, Transformer Engine user guide, FP8 current scaling (performance analysis), FP8 delayed scaling, Handling transposes,
        https://docs.nvidia.com/deeplearning/transformer-engine/user-guide
    Leaves out: casts fused with the kernel that makes the tensor; scales moved again into the order a product wants them in

    >>> float(cast(4096 * 4096, 2, 1, 1, 2)) / 4096**2  # read for its scale, read, written by rows and by columns
    6.0
    """
    moved = 1.0 * elements * (bytes_wide * (1.0 + scale_reads) + 1.0 * bytes_narrow * layouts)
    return inside(moved, elements >= 0, bytes_wide >= 0, bytes_narrow >= 0, scale_reads >= 0, layouts >= 0)


def unscale(parameters, bytes_per_element):
    """Traffic of taking a loss scale out of gradients in place, looking for infinities on the way: ``2 parameters bytes_per_element``.

    Parameters
        parameters [1]: parameters this rank updates, >= 0
        bytes_per_element [B]: element of a gradient as the optimizer reads it, >= 0
    Returns [B]: bytes moved
    Source: Megatron Core, optimizer.py (_unscale_main_grads_and_check_for_nan), https://github.com/NVIDIA/Megatron-LM; Micikevicius et al.,
        Mixed Precision Training, ICLR 2018, section 3.2, https://arxiv.org/abs/1710.03740
    Leaves out: steps that are skipped because an infinity was found

    >>> float(unscale(1e9, 4))
    8000000000.0
    """
    return inside(2.0 * parameters * bytes_per_element, parameters >= 0, bytes_per_element >= 0)


def accumulation(parameters, bytes_new, bytes_held):
    """Traffic of adding the gradients of a micro-batch to those before: ``parameters (bytes_new + 2 bytes_held)``.

    Parameters
        parameters [1]: parameters whose gradients this rank adds, >= 0
        bytes_new [B]: element of a gradient as it was computed, >= 0
        bytes_held [B]: element of the sum, read and written, >= 0
    Returns [B]: bytes moved
    Source: PyTorch, torch/csrc/autograd/functions/accumulate_grad.h (a gradient is added to the one that is there),
        https://github.com/pytorch/pytorch
    Leaves out: products that add to the sum themselves and make no pass of their own; the first micro-batch, which adds nothing

    >>> float(accumulation(1e9, 2, 4))
    10000000000.0
    """
    return inside(1.0 * parameters * (bytes_new + 2.0 * bytes_held), parameters >= 0, bytes_new >= 0, bytes_held >= 0)


def optimizer_step(parameters, bytes_read_written):
    """Traffic of one optimizer step: ``parameters bytes_read_written``.

    Parameters
        parameters [1]: parameters this rank updates, >= 0
        bytes_read_written [B]: bytes read and written for each, see the optimizers of the catalogue, >= 0
    Returns [B]: bytes moved
    Source: count of tensors; Rajbhandari et al., ZeRO, SC 2020, section 3.1, https://arxiv.org/abs/1910.02054
    Leaves out: gradient clipping and norms (one more read of the gradients)

    >>> float(optimizer_step(70e9, 28)) / 512000  # bytes a token; worked in the cost-of-bandwidth note
    3828125.0
    """
    return inside(1.0 * parameters * bytes_read_written, parameters >= 0, bytes_read_written >= 0)


def adam_mixed_precision(parameters):
    """Least traffic of a mixed-precision Adam step: ``28 N``: 2 gradient, 12 read and 12 written of master, m, v, 2 weight.

    Parameters
        parameters [1]: parameters N this rank updates, >= 0
    Factor [B]: 28 for each parameter
    Returns [B]: bytes moved
    Source: Kingma and Ba, Adam, ICLR 2015, algorithm 1, https://arxiv.org/abs/1412.6980; Rajbhandari et al., ZeRO, SC 2020, section 3.1
    Leaves out: fp32 gradients (2 more), clipping, unfused implementations (several times as much)

    >>> float(adam_mixed_precision(70e9))  # worked in the cost-of-bandwidth note
    1960000000000.0
    """
    return inside(28.0 * parameters, parameters >= 0)


def delta_rule_scan(batch, seq_len, linear_num_value_heads, linear_key_head_dim, linear_value_head_dim, chunk, bytes_per_element):
    """Traffic of the gated delta rule in chunks, forward: ``b s v e (7 d + 6 w + 6 c + 2 d w / c)``.

    With v value heads, keys of width d, values of width w, chunks of c tokens, elements of e bytes. Five kernels hand each other
    tensors through HBM: K K^T in fp32, its inverse, its products with keys and values, the states with the new values, the output.

    Parameters
        batch [1]: sequences, >= 0
        seq_len [token]: tokens s of a sequence, >= 0
        linear_num_value_heads [1]: heads v of values, each with its state; queries and keys are repeated for them, >= 0
        linear_key_head_dim [1]: width d of a query or key, >= 0
        linear_value_head_dim [1]: width w of a value, >= 0
        chunk [token]: tokens c of a chunk, > 0
        bytes_per_element [B]: element e of queries, keys, values and states, >= 0
    Offset [token]: squares of a chunk go with pairs of its tokens, states with chunks, the rest with tokens
    Factor [1]: times the kernels read or write each tensor
    Returns [B]: bytes moved
    Source: flash-linear-attention, fla/ops/gated_delta_rule/chunk.py, chunk_gated_delta_rule_fwd, tensor by tensor,
        https://github.com/fla-org/flash-linear-attention
    Leaves out: gates and decays (4 bytes a head and token each); tensors a kernel reads once for every block of its output; the
        norm of queries and keys and their repetition, which a layer counts beside its convolution

    >>> float(delta_rule_scan(1, 1, 1, 128, 128, 64, 2))  # 2560 elements of a token and head
    5120.0
    """
    keys, values = 1.0 * linear_key_head_dim, 1.0 * linear_value_head_dim
    per_token = 7.0 * keys + 6.0 * values + 6.0 * chunk + 2.0 * ratio(keys * values, 1.0 * chunk)
    return inside(
        1.0 * batch * seq_len * linear_num_value_heads * bytes_per_element * per_token,
        batch >= 0,
        seq_len >= 0,
        linear_num_value_heads >= 0,
        linear_key_head_dim >= 0,
        linear_value_head_dim >= 0,
        chunk > 0,
        bytes_per_element >= 0,
    )


def delta_rule_scan_backward(batch, seq_len, linear_num_value_heads, linear_key_head_dim, linear_value_head_dim, chunk, bytes_per_element):
    """Traffic of the gated delta rule in chunks, backward: ``b s v e (21 d + 15 w + 2 c + 4 d w / c)``.

    With the letters of the forward. The products with keys and values and the states are computed again; then the gradients of new
    values and of states, of queries, keys and decays, of the inverse, and the sum of the two gradients of a key.

    Parameters
        batch [1]: sequences, >= 0
        seq_len [token]: tokens s of a sequence, >= 0
        linear_num_value_heads [1]: heads v of values, each with its state; queries and keys are repeated for them, >= 0
        linear_key_head_dim [1]: width d of a query or key, >= 0
        linear_value_head_dim [1]: width w of a value, >= 0
        chunk [token]: tokens c of a chunk, > 0
        bytes_per_element [B]: element e of queries, keys, values and states, >= 0
    Offset [token]: squares of a chunk go with pairs of its tokens, states with chunks, the rest with tokens
    Factor [1]: times the kernels read or write each tensor
    Returns [B]: bytes moved
    Source: flash-linear-attention, fla/ops/gated_delta_rule/chunk.py, chunk_gated_delta_rule_bwd, tensor by tensor,
        https://github.com/fla-org/flash-linear-attention
    Leaves out: as forward

    >>> float(delta_rule_scan_backward(1, 1, 1, 128, 128, 64, 2))  # 5760 elements of a token and head
    11520.0
    """
    keys, values = 1.0 * linear_key_head_dim, 1.0 * linear_value_head_dim
    per_token = 21.0 * keys + 15.0 * values + 2.0 * chunk + 4.0 * ratio(keys * values, 1.0 * chunk)
    return inside(
        1.0 * batch * seq_len * linear_num_value_heads * bytes_per_element * per_token,
        batch >= 0,
        seq_len >= 0,
        linear_num_value_heads >= 0,
        linear_key_head_dim >= 0,
        linear_value_head_dim >= 0,
        chunk > 0,
        bytes_per_element >= 0,
    )


def mamba_scan(batch, seq_len, mamba_num_heads, mamba_head_dim, ssm_state_size, chunk, mamba_n_groups, bytes_per_element):
    """Traffic of Mamba-2's chunked scan, forward: ``b s e (a p (4 + 6 n / q) + 4 g (n + q))``.

    With a heads of width p, n states, chunks of q tokens, g groups, elements of e bytes; a tensor in fp32 counts twice. The scan reads x
    twice and the gate and writes the output; a chunk's state is written and read in fp32, then passed on narrow and read; the scores
    C B^T of a chunk are written and read in fp32; B and C are read twice each.

    Parameters
        batch [1]: sequences, >= 0
        seq_len [token]: tokens s of a sequence, >= 0
        mamba_num_heads [1]: heads a, >= 0
        mamba_head_dim [1]: width p of a head, >= 0
        ssm_state_size [1]: states n of each channel, >= 0
        chunk [token]: tokens q of a chunk, > 0
        mamba_n_groups [1]: groups g of heads that share B and C, >= 0
        bytes_per_element [B]: element e of x, B, C and the output, >= 0
    Offset [token]: scores go with pairs of a chunk's tokens, states with chunks, the rest with tokens
    Factor [1]: times the kernels read or write each tensor
    Returns [B]: bytes moved
    Source: Mamba, mamba_ssm/ops/triton/ssd_combined.py, _mamba_chunk_scan_combined_fwd, tensor by tensor,
        https://github.com/state-spaces/mamba
    Leaves out: steps and decays (fp32, one a head and token); B and C read again by every head of a group

    >>> float(mamba_scan(1, 1, 1, 64, 128, 128, 1, 2))  # 64 (4 + 6) + 4 (128 + 128) = 1664 elements
    3328.0
    """
    width, states = 1.0 * mamba_num_heads * mamba_head_dim, 1.0 * ssm_state_size
    per_token = width * (4.0 + 6.0 * ratio(states, 1.0 * chunk)) + 4.0 * mamba_n_groups * (states + chunk)
    return inside(
        1.0 * batch * seq_len * bytes_per_element * per_token,
        batch >= 0,
        seq_len >= 0,
        mamba_num_heads >= 0,
        mamba_head_dim >= 0,
        ssm_state_size >= 0,
        chunk > 0,
        mamba_n_groups >= 0,
        bytes_per_element >= 0,
    )
