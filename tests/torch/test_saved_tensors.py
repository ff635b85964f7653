"""Bytes of one layer that autograd keeps: the laws against torch's saved tensors.

Each case adds up law + named differences == torch, to the byte. A difference has a name and a formula, never a tolerance.
"""

from __future__ import annotations

import pytest
import torch
import torch.utils.checkpoint
from blocks import Block, Decoder, GatedMLP, PlainMLP, Size, block_input, saved_bytes, token_ids
from torch.nn import functional

from ironlaw.law import activations

pytestmark = pytest.mark.torch

BF16, FP32 = torch.bfloat16, torch.float32
GPT = {"gated": False, "batch": 2, "seq_len": 64, "hidden": 96, "heads": 4, "kv_heads": 4, "head_dim": 24, "inner": 384}
LLAMA = {"gated": True, "batch": 2, "seq_len": 64, "hidden": 96, "heads": 6, "kv_heads": 2, "head_dim": 16, "inner": 272}
NORMS = 2
SAVED_PLAIN = 2  # input and output of the activation
SAVED_GATED = 4  # gate, up, activated gate, product
RMS_NORM_IN_PIECES = "rms norm in pieces"

SIZES = {
    "gpt-unfused": Size(flash=False, **GPT),
    "gpt-unfused-bf16": Size(flash=False, dtype=BF16, **GPT),
    "gpt-unfused-dropout": Size(flash=False, dropout=0.1, **GPT),
    "gpt-unfused-dropout-bf16": Size(flash=False, dropout=0.1, dtype=BF16, **GPT),
    "gpt-unfused-one-sequence": Size(flash=False, dtype=BF16, **(GPT | {"batch": 1})),
    "gpt-unfused-fp32-softmax": Size(flash=False, dtype=BF16, softmax_dtype=FP32, **GPT),
    "gpt-flash": Size(**GPT),
    "gpt-flash-dropout": Size(dropout=0.1, **GPT),
    "gpt-flash-bf16": Size(dtype=BF16, **GPT),
    "llama-flash": Size(**LLAMA),
    "llama-flash-bf16": Size(dtype=BF16, **LLAMA),
    "llama-flash-no-groups": Size(**(LLAMA | {"kv_heads": 6})),
    "llama-flash-wide-heads": Size(dtype=BF16, **(LLAMA | {"head_dim": 32})),
}
STANDARD = [name for name, size in SIZES.items() if size.softmax_dtype is None]


@pytest.fixture(params=SIZES)
def size(request):
    return SIZES[request.param]


def law(size):
    """What estimate/memory adds up for one layer on one rank."""
    e, flash, dropout = size.element, float(size.flash), float(size.dropout > 0)
    saved = SAVED_GATED if size.gated else SAVED_PLAIN
    return float(
        activations.norms_and_residuals(size.tokens, size.hidden, NORMS, dropout, 1, 0, e, e)
        + activations.attention(size.tokens, size.heads, size.kv_heads, size.head_dim, flash, 1, e)
        + activations.attention_scores(size.tokens, size.seq_len, size.heads, flash, dropout, 1, e)
        + activations.mlp(size.tokens, size.inner, saved, 1, e)
    )


def differences(size):
    """What torch keeps beside the law, by name, in bytes."""
    t, h, s, e = size.tokens, size.hidden, size.seq_len, size.element
    scores = t * s * size.heads
    named = {}
    if size.gated:
        # F.rms_norm is one kernel on CUDA, which keeps its input and rstd. On a CPU it is a chain of operators in fp32: they
        # keep an fp32 input (the input itself when it is fp32) and the fp32 quotient instead of the e-byte input.
        named[RMS_NORM_IN_PIECES] = NORMS * t * h * (4 + 4 - e)
        named["rms norm: rstd"] = NORMS * t * 4
        named["rotary cos and sin, the same for all layers"] = 2 * s * size.head_dim * e
    else:
        named["layer norm: mean and rstd, in the type of the weights on a CPU"] = NORMS * 2 * t * e
    if not size.flash:
        named["causal mask of 1-byte bools, the same for all heads and sequences"] = s * s
    if size.softmax_dtype is FP32 and e < 4:
        named["softmax in fp32 beside its copy in the element type"] = 4 * scores
    return named


def test_a_block_to_the_byte(size):
    assert saved_bytes(Block(size), block_input(size)) == law(size) + sum(differences(size).values())


@pytest.mark.parametrize("size", [SIZES[name] for name in STANDARD], ids=STANDARD)
def test_the_law_alone_is_near(size):
    """Without the chain of a CPU's rms norm, which accelerators run as one kernel, the law is within 10 % of torch."""
    counted = saved_bytes(Block(size), block_input(size)) - differences(size).get(RMS_NORM_IN_PIECES, 0)
    assert law(size) == pytest.approx(counted, rel=0.1)


def test_korthikanti_is_torch_in_bf16_with_dropout():
    """s b h (34 + 5 a s / h), which has 4 h inside the mlp and heads that fill the width."""
    size = SIZES["gpt-unfused-dropout-bf16"]
    assert (size.inner, size.heads * size.head_dim) == (4 * size.hidden, size.hidden)
    expected = activations.korthikanti_layer(size.batch, size.seq_len, size.hidden, size.heads, 1, 0)
    assert saved_bytes(Block(size), block_input(size)) == float(expected) + sum(differences(size).values())


@pytest.mark.parametrize("dtype", [FP32, BF16])
@pytest.mark.parametrize(("kind", "sizes", "saved"), [(PlainMLP, GPT, SAVED_PLAIN), (GatedMLP, LLAMA, SAVED_GATED)])
def test_a_feed_forward_block_alone(kind, sizes, saved, dtype):
    """Its input is counted with the norms; the rest is the law's inner tensors, nothing else."""
    size = Size(dtype=dtype, **sizes)
    block_own_input = size.tokens * size.hidden * size.element
    inner = float(activations.mlp(size.tokens, size.inner, saved, 1, size.element))
    assert saved_bytes(kind(size).to(dtype), block_input(size)) == block_own_input + inner


def squared_relu(x):
    return functional.relu(x).square()


@pytest.mark.parametrize(("activation", "saved"), [(functional.gelu, 2), (functional.relu, 1), (squared_relu, 2)])
def test_what_an_activation_keeps(activation, saved):
    """GELU keeps its input beside the output; ReLU's gradient needs only the output, which the next product keeps anyway."""
    size = Size(**GPT)
    expected = float(activations.mlp(size.tokens, size.inner, saved, 1, size.element))
    assert saved_bytes(PlainMLP(size, activation), block_input(size)) == size.tokens * size.hidden * size.element + expected


def test_a_recomputed_block_keeps_its_input(size):
    def again(x):
        return torch.utils.checkpoint.checkpoint(block, x, use_reentrant=True)

    block = Block(size)
    again.parameters = block.parameters
    expected = activations.checkpoint(size.tokens, size.hidden, 1, 0, size.element)
    assert saved_bytes(again, block_input(size)) == float(expected)


def test_a_model_with_its_loss(size):
    """Layers, fp32 log-softmax of the logits, and what no law counts: the last norm, the head's input, index tensors."""
    vocab, layers, t, h, e = 211, 2, size.tokens, size.hidden, size.element
    model = Decoder(size, layers, vocab, tied=False)
    targets = token_ids(size, vocab)

    def loss(tokens):
        return functional.cross_entropy(model(tokens).flatten(0, 1).float(), targets.flatten())

    loss.parameters = model.parameters
    logits = float(activations.logits(t, vocab, 1, 4))
    last_norm = t * h * (8 + e) + 4 * t if size.gated else t * h * 2 * e + 2 * t * e
    indices = 8 * t + 8 * t + (0 if size.gated else 8 * size.seq_len)
    weight_of_the_mean = 4
    beside = last_norm + indices + weight_of_the_mean
    expected = layers * (law(size) + sum(differences(size).values())) + logits + beside
    assert saved_bytes(loss, token_ids(size, vocab)) == expected
