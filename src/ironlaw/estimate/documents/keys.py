"""Keys that a query of a document sees, by the masks of a model."""

from __future__ import annotations

from typing import Any

import numpy as np

from ironlaw.catalog.model import Model
from ironlaw.law import masks


def keys_seen(model: Model, span: Any, ranks: Any = 1.0) -> Any:
    """Keys that a query of the last of ``ranks`` equal pieces of a document of ``span`` tokens sees, mean of the model's masks."""
    if model.source_tokens:  # what an encoder made
        return span
    if model.o_lora_rank:  # compressed attention: a window, and entries behind it
        near = _windowed(span, model.sliding_window, ranks)
        return near + _windowed(span / model.compress_ratio, model.index_topk, ranks) if model.compress_ratio else near
    share = model.sliding_window_layers / model.num_hidden_layers
    if model.bidirectional:  # every query sees its window, or all
        near = np.minimum(span, model.sliding_window) if share else span
        return share * near + (1.0 - share) * span
    everywhere = _windowed(span, model.index_topk, ranks)  # a token among the first attends to all before it
    if share == 0.0:
        return everywhere
    if model.attention_chunk_size:  # pieces of whole chunks have the same work
        return share * masks.chunked_length(span, model.attention_chunk_size) + (1.0 - share) * everywhere
    return share * _windowed(span, model.sliding_window, ranks) + (1.0 - share) * everywhere


def _windowed(span: Any, window: float, ranks: Any) -> Any:
    mean = masks.attended_length(span, window)
    return mean if np.all(np.equal(ranks, 1.0)) else mean * masks.causal_imbalance(ranks, span, window)
