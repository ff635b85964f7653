"""FLOP and parameters: the laws against torch's FlopCounterMode and numel."""

from __future__ import annotations

import pytest
from blocks import Block, Decoder, Size, block_input, counted_flop, numel, token_ids

from ironlaw.estimate.layer.attention import FLASH_BACKWARD_FLOP, UNFUSED_BACKWARD_FLOP, head_shapes
from ironlaw.estimate.layer.products import dense_shapes
from ironlaw.estimate.layer.sizes import Shapes
from ironlaw.law import flops, parameters

pytestmark = pytest.mark.torch

GPT = {"gated": False, "hidden": 48, "heads": 4, "kv_heads": 4, "head_dim": 12, "inner": 192}
LLAMA = {"gated": True, "hidden": 64, "heads": 8, "kv_heads": 2, "head_dim": 16, "inner": 176}
SIZES = {
    "gpt-unfused": Size(batch=2, seq_len=24, flash=False, **GPT),
    "gpt-unfused-dropout": Size(batch=2, seq_len=24, flash=False, dropout=0.1, **GPT),
    "gpt-flash": Size(batch=3, seq_len=40, **GPT),
    "llama-flash": Size(batch=2, seq_len=32, **LLAMA),
    "llama-flash-one-kv-head": Size(batch=1, seq_len=56, **(LLAMA | {"kv_heads": 1})),
    "llama-unfused-no-groups": Size(batch=2, seq_len=32, flash=False, **(LLAMA | {"kv_heads": 8})),
}
LAYERS, VOCAB = 3, 101


@pytest.fixture(params=SIZES)
def size(request):
    return SIZES[request.param]


def linear_law(size):
    """Forward, gradient of the input, gradient of the weight: three products of each linear shape."""
    shapes = Shapes(
        tokens=size.tokens,
        sequence_tokens=size.tokens,
        hidden=size.hidden,
        heads=size.heads,
        kv_heads=size.kv_heads,
        head_dim=size.head_dim,
        ffn=size.inner,
        wide=size.inner * (1 + size.gated),
    )
    linear = (*head_shapes(shapes).values(), *dense_shapes(shapes).values())
    products = [flops.gemm(m, n, k) + flops.gemm(m, k, n) + flops.gemm(k, n, m) for m, n, k in linear]
    return float(sum(products))


def core_forward_law(size):
    """Torch's convention: the full square of the scores, causal or not."""
    return float(flops.attention_core(size.batch, size.seq_len, size.seq_len, size.heads, size.head_dim))


def core_law(size):
    """Forward, and backward 2 times that for the separate products, 2.5 for a fused kernel, which makes the scores again."""
    return core_forward_law(size) * (1.0 + (FLASH_BACKWARD_FLOP if size.flash else UNFUSED_BACKWARD_FLOP))


def split_by_kind(counted):
    """Torch's operators as (linear, attention); any other one is a failure."""
    linear, core = {"mm", "addmm"}, {"bmm", "baddbmm"}
    parts = [0.0, 0.0]
    for name, flop in counted.items():
        attention = name in core or name.startswith("_scaled_dot_product")
        assert attention or name in linear, name
        parts[attention] += flop
    return tuple(parts)


def test_a_block_forward_and_backward(size):
    linear, core = split_by_kind(counted_flop(Block(size), block_input(size)))
    assert linear == linear_law(size)
    assert core == core_law(size)


def test_dense_layer_forward_is_a_third_of_three_products(size):
    """The law of the whole layer says what torch counts, its backward pass taken as twice the forward pass."""
    linear, core = split_by_kind(counted_flop(Block(size), block_input(size)))
    law = flops.dense_layer_forward(
        size.batch, size.seq_len, size.seq_len, size.hidden, size.inner, size.heads, size.kv_heads, size.head_dim, int(size.gated)
    )
    computed_again = 0.5 * core_forward_law(size) if size.flash else 0.0
    assert linear + core == 3.0 * float(law) + computed_again


def matmul_parameters(size, layers, vocab):
    per_layer = parameters.matmul_per_layer(size.hidden, size.heads, size.kv_heads, size.head_dim, size.inner, float(size.gated))
    return layers * per_layer + parameters.embedding(vocab, size.hidden)


@pytest.mark.parametrize("tied", [False, True])
def test_a_model_is_the_mfu_convention(size, tied):
    """Torch == 6 P + 12 L w s for each token, P with the head and without the look-up tables.

    The one difference: a fused core makes the scores again backward, one of its two forward products, which MFU does not
    count: half of the core's forward FLOP in each layer.
    """
    counted = sum(counted_flop(Decoder(size, LAYERS, VOCAB, tied), token_ids(size, VOCAB)).values())
    width = size.heads * size.head_dim
    law = float(flops.model_per_token(matmul_parameters(size, LAYERS, VOCAB), LAYERS, width, size.seq_len)) * size.tokens
    computed_again = 0.5 * LAYERS * core_forward_law(size) if size.flash else 0.0
    assert counted == law + computed_again


def test_causal_convention_is_half_of_torchs_core(size):
    """mfu counts half of each score product; torch counts the whole under a causal mask."""
    width = size.heads * size.head_dim
    p = matmul_parameters(size, LAYERS, VOCAB)
    full = flops.model_per_token(p, LAYERS, width, size.seq_len)
    half = flops.model_per_token(p, LAYERS, width, size.seq_len / 2)
    assert float(full - half) * size.tokens == 1.5 * LAYERS * core_forward_law(size)


def test_parameters_of_a_block(size):
    block, bias = Block(size), float(not size.gated)
    attention = parameters.attention(size.hidden, size.heads, size.kv_heads, size.head_dim, bias, bias, 0)
    mlp = parameters.mlp(size.hidden, size.inner, float(size.gated), bias)
    norm = parameters.norm(size.hidden, 1.0 + bias)
    assert numel(block.attention) == float(attention)
    assert numel(block.mlp) == float(mlp)
    assert numel(block.attention_norm) == numel(block.mlp_norm) == float(norm)
    assert numel(block) == float(attention + mlp + 2.0 * norm)


@pytest.mark.parametrize("tied", [False, True])
def test_parameters_of_a_model(size, tied):
    bias = float(not size.gated)
    law = parameters.decoder(
        size.hidden,
        LAYERS,
        size.heads,
        size.kv_heads,
        size.head_dim,
        size.inner,
        VOCAB,
        size.seq_len,
        bias,  # learned positions: the GPT
        float(tied),
        float(size.gated),
        1.0 + bias,
        2,
        0,
        0,
        bias,
        bias,
        bias,
    )
    assert numel(Decoder(size, LAYERS, VOCAB, tied)) == float(law)
