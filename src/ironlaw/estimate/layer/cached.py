"""What attention keeps of tokens that were read: keys and values, or a latent, of all tokens or of those in a window or chunk."""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

from ironlaw.catalog.model import Model
from ironlaw.estimate.layer.kinds import kinds, sized
from ironlaw.estimate.layer.sizes import core_head_dim


class Cached(NamedTuple):
    """Layers whose cache is alike."""

    layers: float
    heads: float  # of keys and values together, halved where values are the keys; 0: they use those of a layer before them
    head_dim: float
    width: float  # query heads times head_dim, mean of queries-and-keys and values
    window: float  # tokens that a query sees, and that are kept; 0: all

    def kept(self, length: float) -> float:
        """Tokens kept of a sequence of this many."""
        return min(length, self.window) if self.window else length


@lru_cache(256)
def cached_layers(model: Model) -> tuple[Cached, ...]:
    """The layers of a model that attend, by what they keep."""
    found: dict[tuple[float, float, float, float], float] = {}
    for kind in kinds(model):
        if not kind.attends_along:
            continue
        m = sized(model, kind)
        local = kind.count * m.sliding_window_layers / m.num_hidden_layers
        heads = 0.0 if m.kv_shared else m.num_key_value_heads * (0.5 if m.attention_k_eq_v else 1.0)
        width = float(m.num_attention_heads) * core_head_dim(m)
        window = float(m.attention_chunk_size or m.sliding_window)
        for count, seen in ((local, window), (kind.count - local, 0.0)):
            if count > 0.0:
                key = (heads, float(m.head_dim), width, seen)
                found[key] = found.get(key, 0.0) + count
    return tuple(Cached(count, *key) for key, count in found.items())


def cached_elements(model: Model, length: float) -> float:
    """Elements of keys and values that one sequence of this many tokens keeps, without latents."""
    return sum(2.0 * part.layers * part.heads * part.head_dim * part.kept(length) for part in cached_layers(model))


def seen_by_width(model: Model, full: float, windowed: dict[float, float]) -> float:
    """Keys that a query sees, mean over the layers by their width; ``windowed``: keys by window, ``full`` those without one."""
    parts = cached_layers(model)
    whole = sum(part.layers * part.width for part in parts)
    seen = sum(part.layers * part.width * (windowed[part.window] if part.window else full) for part in parts)
    return seen / whole if whole else full
