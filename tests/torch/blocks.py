"""Small transformer blocks in plain torch, of the two shapes the laws describe, and what torch counts while they run.

A missing torch fails here: this group runs only when asked for.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import nn
from torch.nn import functional
from torch.utils.flop_counter import FlopCounterMode, sdpa_backward_flop_count, sdpa_flop_count


@dataclass(frozen=True)
class Size:
    """Sizes of a block and of its micro-batch; ``gated`` makes a Llama block, else a GPT block."""

    gated: bool
    batch: int
    seq_len: int
    hidden: int
    heads: int
    kv_heads: int
    head_dim: int
    inner: int
    dtype: torch.dtype = torch.float32
    flash: bool = True
    dropout: float = 0.0
    softmax_dtype: torch.dtype | None = None

    @property
    def tokens(self) -> int:
        return self.batch * self.seq_len

    @property
    def element(self) -> int:
        return self.dtype.itemsize


def dropped(x, p):
    """Dropout by the kernel that F.dropout runs on an accelerator: its mask is bool. On a CPU F.dropout keeps x's dtype."""
    return torch.native_dropout(x, p, True)[0] if p else x


def attended(q, k, v, size):
    """Causal attention of (batch, heads, seq_len, head_dim): torch's fused kernel, or product, mask, softmax, dropout, product."""
    if size.flash:
        return functional.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=size.heads != size.kv_heads)
    future = torch.ones(size.seq_len, size.seq_len, dtype=torch.bool).triu(1)
    scores = (q @ k.transpose(-1, -2) * size.head_dim**-0.5).masked_fill(future, float("-inf"))
    weights = functional.softmax(scores, dim=-1, dtype=size.softmax_dtype).to(v.dtype)
    return dropped(weights, size.dropout) @ v


def split(x, heads):
    """(batch, seq_len, heads head_dim) as (batch, heads, seq_len, head_dim), a view."""
    return x.unflatten(-1, (heads, -1)).transpose(1, 2)


def joined(x):
    """The inverse of split: a view of what the fused kernel returns, a copy of what the products return."""
    return x.transpose(1, 2).flatten(-2)


class GPTAttention(nn.Module):
    """One matrix for queries, keys and values; biases."""

    def __init__(self, size):
        super().__init__()
        self.size = size
        self.qkv = nn.Linear(size.hidden, 3 * size.heads * size.head_dim)
        self.out = nn.Linear(size.heads * size.head_dim, size.hidden)

    def forward(self, x):
        q, k, v = (split(part, self.size.heads) for part in self.qkv(x).chunk(3, dim=-1))
        return self.out(joined(attended(q, k, v, self.size)))


class PlainMLP(nn.Module):
    """Up, activation, down, with biases."""

    def __init__(self, size, activation=functional.gelu):
        super().__init__()
        self.activation = activation
        self.up = nn.Linear(size.hidden, size.inner)
        self.down = nn.Linear(size.inner, size.hidden)

    def forward(self, x):
        return self.down(self.activation(self.up(x)))


def rotary_tables(size):
    """cos and sin of every position and channel, one pair for all layers."""
    frequency = 10000.0 ** (-torch.arange(0, size.head_dim, 2) / size.head_dim)
    angle = torch.outer(torch.arange(size.seq_len), frequency).repeat(1, 2)
    return angle.cos().to(size.dtype), angle.sin().to(size.dtype)


def rotated(x, cos, sin):
    left, right = x.chunk(2, dim=-1)
    return x * cos + torch.cat((-right, left), dim=-1) * sin


class LlamaAttention(nn.Module):
    """Three matrices, grouped heads, rotary positions; no biases."""

    def __init__(self, size):
        super().__init__()
        self.size = size
        self.q = nn.Linear(size.hidden, size.heads * size.head_dim, bias=False)
        self.k = nn.Linear(size.hidden, size.kv_heads * size.head_dim, bias=False)
        self.v = nn.Linear(size.hidden, size.kv_heads * size.head_dim, bias=False)
        self.out = nn.Linear(size.heads * size.head_dim, size.hidden, bias=False)
        self.tables = rotary_tables(size)

    def forward(self, x):
        q, k = (rotated(split(m(x), n), *self.tables) for m, n in ((self.q, self.size.heads), (self.k, self.size.kv_heads)))
        return self.out(joined(attended(q, k, split(self.v(x), self.size.kv_heads), self.size)))


class GatedMLP(nn.Module):
    """SwiGLU as eager torch runs it: the activation and the product are two kernels."""

    def __init__(self, size):
        super().__init__()
        self.gate = nn.Linear(size.hidden, size.inner, bias=False)
        self.up = nn.Linear(size.hidden, size.inner, bias=False)
        self.down = nn.Linear(size.inner, size.hidden, bias=False)

    def forward(self, x):
        return self.down(functional.silu(self.gate(x)) * self.up(x))


class RMSNorm(nn.Module):
    """Scale only."""

    def __init__(self, size):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(size.hidden))

    def forward(self, x):
        return functional.rms_norm(x, (x.shape[-1],), self.weight, 1e-5)


class Block(nn.Module):
    """One pre-norm layer of either kind."""

    def __init__(self, size):
        super().__init__()
        self.size = size
        self.attention_norm = make_norm(size)
        self.attention = LlamaAttention(size) if size.gated else GPTAttention(size)
        self.mlp_norm = make_norm(size)
        self.mlp = GatedMLP(size) if size.gated else PlainMLP(size)
        self.to(size.dtype)

    def forward(self, x):
        x = x + dropped(self.attention(self.attention_norm(x)), self.size.dropout)
        return x + dropped(self.mlp(self.mlp_norm(x)), self.size.dropout)


def make_norm(size):
    return RMSNorm(size) if size.gated else nn.LayerNorm(size.hidden)


class Decoder(nn.Module):
    """Embedding, learned positions in a GPT, layers, last norm, head."""

    def __init__(self, size, layers, vocab, tied):
        super().__init__()
        self.size = size
        self.embedding = nn.Embedding(vocab, size.hidden)
        self.positions = None if size.gated else nn.Embedding(size.seq_len, size.hidden)
        self.layers = nn.ModuleList(Block(size) for _ in range(layers))
        self.norm = make_norm(size)
        self.head = nn.Linear(size.hidden, vocab, bias=False)
        if tied:
            self.head.weight = self.embedding.weight
        self.to(size.dtype)

    def forward(self, tokens):
        x = self.embedding(tokens)
        if self.positions is not None:
            x = x + self.positions(torch.arange(self.size.seq_len))
        for layer in self.layers:
            x = layer(x)
        return self.head(self.norm(x))


def block_input(size):
    """A hidden state that, as inside a model, needs a gradient and is no parameter."""
    return torch.randn(size.batch, size.seq_len, size.hidden, dtype=size.dtype).requires_grad_()


def token_ids(size, vocab):
    return torch.randint(vocab, (size.batch, size.seq_len))


def numel(module):
    """Parameters, a tied one once."""
    return sum(p.numel() for p in module.parameters())


_SDPA = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu
_SDPA_BACKWARD = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward


def counted_flop(module, *inputs):
    """FLOP of one forward and backward pass as torch counts them, by operator name.

    Torch has formulas for the fused attention of CUDA and none for the CPU's, which would count 0: the two below are its
    own functions. They count the full square of a causal mask, and five products backward (the scores once more).
    """
    formulas = {
        _SDPA: lambda q, k, v, *_, **__: sdpa_flop_count(q, k, v),
        _SDPA_BACKWARD: lambda grad, q, k, v, *_, **__: sdpa_backward_flop_count(grad, q, k, v),
    }
    with FlopCounterMode(display=False, custom_mapping=formulas) as counter:
        module(*inputs).sum().backward()
    return {str(op).removeprefix("aten."): flop for op, flop in counter.get_flop_counts()["Global"].items()}


def saved_bytes(module, *inputs):
    """Bytes that autograd keeps after one forward pass: every storage once, those of parameters not.

    The hook holds what it is given, as the graph would: no storage is freed and its address used again.
    """
    own = {p.untyped_storage().data_ptr() for p in module.parameters()}
    kept = []

    def pack(tensor):
        kept.append(tensor)
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        output = module(*inputs)
    assert output.requires_grad
    storages = {t.untyped_storage().data_ptr(): t.untyped_storage().nbytes() for t in kept}
    return sum(size for address, size in storages.items() if address not in own)
