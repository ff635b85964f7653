"""Parameter counts of a catalogue model, by the laws of ``law/parameters``."""

from __future__ import annotations

from typing import Any

from ironlaw.catalog.records import Model
from ironlaw.estimate.stages import Stage
from ironlaw.law import parameters


def norm_weights(model: Model) -> float:
    """Vectors a norm holds: 2 with a bias, else 1."""
    return 2.0 if model.norm == "layernorm" else 1.0


def matmul_per_layer(model: Model) -> Any:
    """Weights of one layer that multiply activations."""
    return parameters.matmul_per_layer(
        model.hidden_size,
        model.num_attention_heads,
        model.num_key_value_heads,
        model.head_dim,
        model.intermediate_size,
        float(model.gated_mlp),
    )


def layer_parameters(model: Model) -> Any:
    """All parameters of one layer."""
    attention = parameters.attention(
        model.hidden_size,
        model.num_attention_heads,
        model.num_key_value_heads,
        model.head_dim,
        float(model.query_key_value_bias),
        float(model.attention_output_bias),
        float(model.qk_norm),
    )
    mlp = parameters.mlp(model.hidden_size, model.intermediate_size, float(model.gated_mlp), float(model.mlp_bias))
    norms = model.norms_per_layer * parameters.norm(model.hidden_size, norm_weights(model))
    return attention + mlp + norms


def embedding_parameters(model: Model) -> Any:
    """Token embedding, learned positions, and the norm some models put behind them."""
    count = parameters.embedding(model.vocab_size, model.hidden_size)
    if model.position_embedding == "learned":
        count = count + parameters.learned_positions(model.max_position_embeddings, model.hidden_size)
    if model.embedding_norm:
        count = count + parameters.norm(model.hidden_size, norm_weights(model))
    return count


def head_parameters(model: Model) -> Any:
    """Output projection, tied or not, and the final norm: what the last stage holds."""
    return parameters.embedding(model.vocab_size, model.hidden_size) + parameters.norm(model.hidden_size, norm_weights(model))


def total_parameters(model: Model) -> Any:
    """Every trained parameter once."""
    tied = parameters.embedding(model.vocab_size, model.hidden_size) if model.tie_word_embeddings else 0.0
    return model.num_hidden_layers * layer_parameters(model) + embedding_parameters(model) + head_parameters(model) - tied


def count_problem(model: Model, tolerance: float = 0.005) -> str | None:
    """What is wrong when the dimensions do not give the published count, else None."""
    if model.published_parameters is None:
        return None
    counted = float(total_parameters(model))
    off = counted / model.published_parameters.value - 1.0
    if abs(off) <= tolerance:
        return None
    return f"{model.name}: dimensions give {counted:,.0f} parameters, {off:+.2%} from the published {model.published_parameters.text}"


def matmul_parameters(model: Model) -> Any:
    """Parameters that multiply activations once a token: the layers' matrices and the output projection."""
    return model.num_hidden_layers * matmul_per_layer(model) + parameters.embedding(model.vocab_size, model.hidden_size)


def stage_parameters(model: Model, stage: Stage) -> Any:
    """Parameters a pipeline stage holds; tied weights stand once where first and last stage are one."""
    tied = parameters.embedding(model.vocab_size, model.hidden_size) if model.tie_word_embeddings else 0.0
    return (
        stage.layers * layer_parameters(model)
        + stage.embedding * embedding_parameters(model)
        + stage.head * head_parameters(model)
        - stage.embedding * stage.head * tied
    )
