"""Serving a model to first order: the cache of keys and values, and what a token reads."""

from __future__ import annotations

from ironlaw.law._domain import inside


def kv_cache(tokens, layers, num_key_value_heads, head_dim, bytes_per_element):
    """Keys and values of every token and attending layer: ``2 tokens layers heads head_dim bytes``.

    Parameters
        tokens [token]: tokens of all sequences that are kept, of a layer with a window those in it, >= 0
        layers [1]: layers that attend, >= 0
        num_key_value_heads [1]: heads of keys and values, mean over the layers, > 0
        head_dim [1]: width of one head, >= 1
        bytes_per_element [B]: bytes of a stored number, > 0
    Factor [1/token]: one entry for each token
    Returns [B]: bytes
    Source: Shazeer, Fast Transformer Decoding, 2019, section 2.4 (incremental multi-head attention), https://arxiv.org/abs/1911.02150
    Leaves out: pages that are not full

    >>> float(kv_cache(4096, 80, 8, 128, 2)) / 2**30  # Llama 3 70B
    1.25
    """
    size = 2.0 * tokens * layers * num_key_value_heads * head_dim * bytes_per_element
    return inside(size, tokens >= 0, layers >= 0, num_key_value_heads > 0, head_dim >= 1, bytes_per_element > 0)


def latent_kv_cache(tokens, layers, kv_lora_rank, qk_rope_head_dim, bytes_per_element):
    """The latent of keys and values and the key's part with position: ``tokens layers (rank + rope) bytes``.

    Parameters
        tokens [token]: tokens of all sequences held, >= 0
        layers [1]: layers that attend, >= 0
        kv_lora_rank [1]: width of the latent, >= 1
        qk_rope_head_dim [1]: width of the key's part with position, >= 0
        bytes_per_element [B]: bytes of a stored number, > 0
    Factor [1/token]: one entry for each token
    Returns [B]: bytes
    Source: DeepSeek-AI, DeepSeek-V2, 2024, section 2.1.4, table 1, https://arxiv.org/abs/2405.04434
    Leaves out: pages that are not full

    >>> float(latent_kv_cache(1, 61, 512, 64, 2))  # DeepSeek-V3, a token
    70272.0
    """
    size = 1.0 * tokens * layers * (1.0 * kv_lora_rank + qk_rope_head_dim) * bytes_per_element
    return inside(size, tokens >= 0, layers >= 0, kv_lora_rank >= 1, qk_rope_head_dim >= 0, bytes_per_element > 0)


def forward_flop(tokens, matmul_parameters, attended, num_hidden_layers, attention_width):
    """Operations of a forward pass: two for each weight, four for each key a query sees: ``tokens (2 N + 4 layers width attended)``.

    Parameters
        tokens [token]: tokens computed, >= 0
        matmul_parameters [1]: weights N that multiply each token, >= 0
        attended [1]: keys a token sees, mean, >= 0
        num_hidden_layers [1]: layers that attend, >= 0
        attention_width [1]: heads times head_dim, >= 0
    Factor [FLOP/token]: operations of a token
    Returns [FLOP]: operations
    Source: Kaplan et al., Scaling Laws for Neural Language Models, 2020, table 1, https://arxiv.org/abs/2001.08361, with the product of
        scores and values beside that of queries and keys
    Leaves out: norms, softmax, sampling

    >>> float(forward_flop(1, 70e9, 0, 80, 8192))  # kappa 2; worked in the cost-of-bandwidth note
    140000000000.0
    """
    flop = tokens * (2.0 * matmul_parameters + 4.0 * num_hidden_layers * attention_width * attended)
    return inside(flop, tokens >= 0, matmul_parameters >= 0, attended >= 0, num_hidden_layers >= 0, attention_width >= 0)
