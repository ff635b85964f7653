"""Parameter counts of a catalogue model, by the laws of ``law/parameters``."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any

import numpy as np

from ironlaw.catalog.model import Model
from ironlaw.estimate.layer.kinds import Kind, kinds, layers_of, sized
from ironlaw.estimate.layer.sizes import core_head_dim
from ironlaw.estimate.pipeline.stages import Stage, once_for_stage
from ironlaw.law import parameters, residuals
from ironlaw.precision import SHARED


def norm_parameters(model: Model) -> Any:
    """One norm of the hidden state: two vectors of weights with a bias, else one, or none."""
    weights = {"layernorm": 2.0, "no-weights": 0.0}.get(model.norm, 1.0)
    return parameters.norm(model.hidden_size, weights) if weights else 0.0


def mlp_parameters(model: Model, width: int) -> Any:
    """One dense MLP of a width, shared experts included."""
    return parameters.mlp(model.hidden_size, width, float(model.gated_mlp), float(model.mlp_bias))


def expert_width(model: Model) -> int:
    """Width of the rows of a routed expert: that of the residual stream, or of the latent it is projected to."""
    return model.moe_latent_size or model.hidden_size


def latent_projections(model: Model) -> float:
    """Weights of a routed layer that project rows to the experts' latent and back."""
    return 2.0 * model.hidden_size * model.moe_latent_size


def latent_norm(model: Model) -> float:
    """Weights of the norm of what experts on a latent put out."""
    return float(model.moe_latent_size) if model.moe_latent_norm else 0.0


def residual_parameters(model: Model, kind: Kind) -> Any:
    """What a layer's residual connections hold: hyper-connections or attention residuals of each block, its second embedding."""
    count: Any = 0.0
    if model.hc_mult:
        count = count + kind.blocks * residuals.hyper_connection(model.hidden_size, model.hc_mult)
    if model.attn_res_block_size:
        count = count + kind.blocks * residuals.attention_residual(model.hidden_size)
    if model.hidden_size_per_layer_input:
        count = count + residuals.per_layer_embedding(model.hidden_size, model.hidden_size_per_layer_input)
    return count


def residual_matmul(model: Model, kind: Kind) -> Any:
    """Weights among them that multiply each token."""
    count: Any = 0.0
    if model.hc_mult:
        count = count + kind.blocks * residuals.hyper_connection_matmul(model.hidden_size, model.hc_mult)
    return count + 3.0 * model.hidden_size * model.hidden_size_per_layer_input  # a layer's share of the projection of all layers too


def visited(model: Model) -> float:
    """Mean number of experts with weights that a token visits; experts without weights are taken to be chosen as often as others."""
    choices = model.num_experts + model.zero_expert_num
    return model.num_experts_per_tok * (model.num_experts / choices) if choices else 0.0


def router_parameters(model: Model) -> Any:
    """The router of a routed layer, which also scores experts that compute nothing."""
    return parameters.router(model.hidden_size, model.num_experts + model.zero_expert_num, float(model.router_bias))


@lru_cache(256)
def expert_parameters(model: Model) -> Any:
    """One routed expert."""
    return parameters.expert(expert_width(model), model.moe_intermediate_size, float(model.gated_mlp), float(model.expert_bias))


def norms_of(model: Model, kind: Kind) -> float:
    """Norms of a layer: the model's number, or one where a layer is one block; fewer where a layer has no mixer or no MLP."""
    if not kind.blocks:
        return 0.0
    return 1.0 if model.one_block_layers else float(model.norms_per_layer) * (kind.blocks / 2.0 if model.layer_groups else 1.0)


def layer_parts(model: Model, kind: Kind) -> dict[str, Any]:
    """Parameters of a layer outside its routed experts, by part."""
    model = sized(model, kind)
    parts = {kind.mixer.prefix.strip() or "attention": kind.mixer.parameters(model)}
    parts["norms"] = norms_of(model, kind) * norm_parameters(model)
    if held := residual_parameters(model, kind):
        parts["residual connections"] = held
    if kind.place == "end":  # two hidden states are normed and projected to one, and normed again
        parts["projection of two states"] = 2.0 * model.hidden_size * model.hidden_size + 3.0 * norm_parameters(model)
    if kind.routed:
        parts["router"] = router_parameters(model)
        parts["projections to the experts' width"] = latent_projections(model) + latent_norm(model)
        if model.shared_expert_intermediate_size:
            gate = model.hidden_size if model.shared_expert_gate else 0.0
            parts["shared expert"] = mlp_parameters(model, model.shared_expert_intermediate_size) + gate
    elif kind.has_mlp:
        parts["mlp"] = mlp_parameters(model, model.intermediate_size)
    return parts


@lru_cache(256)
def common_parameters(model: Model, kind: Kind) -> Any:
    """Parameters of a layer outside its routed experts."""
    return sum(layer_parts(model, kind).values())


def common_width(model: Model, kind: Kind) -> int:
    """Width of a layer's MLP outside its routed experts: of a dense MLP or of the shared experts, 0 without either."""
    return (model.shared_expert_intermediate_size if kind.routed else model.intermediate_size) if kind.has_mlp else 0


def routed_parameters(model: Model, kind: Kind) -> Any:
    """All routed experts of one layer of a kind."""
    return model.num_experts * expert_parameters(model) if kind.routed else 0.0


def largest_operand(model: Model, kind: Kind) -> float:
    """The largest weight of a layer that one matrix product outside the experts reads."""
    model = sized(model, kind)
    wide = kind.mixer.blocks * model.num_attention_heads * model.head_dim
    return model.hidden_size * max(wide, float(common_width(model, kind)))


def largest_experts(model: Model, kind: Kind) -> float:
    """The weights of all routed experts of a layer that one grouped product reads."""
    return float(model.num_experts * expert_width(model) * model.moe_intermediate_size) if kind.routed else 0.0


@lru_cache(256)
def table_parameters(model: Model) -> Any:
    """The table of the token embedding, or of the output layer."""
    return parameters.embedding(model.vocab_size, model.hidden_size)


def output_width(model: Model) -> float:
    """Numbers that the output layer predicts of a token: a logit for each word of the vocabulary, or scores."""
    return float(model.scores or model.vocab_size)


@lru_cache(256)
def output_matrix(model: Model) -> Any:
    """The matrix of the output layer."""
    return parameters.embedding(output_width(model), model.hidden_size)


@lru_cache(256)
def embedding_parameters(model: Model) -> Any:
    """Token embedding, learned positions, and the norm that some models have after them."""
    count = table_parameters(model)
    if model.products:  # of patches, in place of a table; a kind of layer holds them with the other parameters
        count = 0.0 * count
    else:
        count = count + model.other_parameters
    if model.position_embedding == "learned":
        count = count + parameters.learned_positions(model.max_position_embeddings, model.hidden_size)
    if model.embedding_norm:
        count = count + norm_parameters(model)
    if model.hidden_size_per_layer_input:
        rows, width = model.vocab_size_per_layer_input or model.vocab_size, model.hidden_size_per_layer_input
        count = count + residuals.per_layer_tables(model.hidden_size, model.num_hidden_layers, width, rows)
    return count


@lru_cache(256)
def head_parameters(model: Model) -> Any:
    """Output projection, tied or not, and the final norm, as the last stage holds them."""
    count = output_matrix(model) + (norm_parameters(model) if model.final_norm else 0.0)
    if model.head == "masked":
        count = count + transform_parameters(model)
    if model.hc_mult:
        count = count + residuals.hyper_head(model.hidden_size, model.hc_mult)
    if model.attn_res_block_size:
        count = count + residuals.attention_residual(model.hidden_size)
    return count + (output_width(model) if model.output_bias else 0.0)


def transform_parameters(model: Model) -> Any:
    """The dense layer and the norm before the output layer of a model that fills in masked tokens."""
    return parameters.mlp(model.hidden_size, model.hidden_size, 0.0, 0.0) / 2.0 + model.hidden_size + norm_parameters(model)


def tied_parameters(model: Model) -> Any:
    """The table that embedding and output layer share; 0 where each has one."""
    return table_parameters(model) if model.tie_word_embeddings else 0.0


def _layers(model: Model, experts: float) -> Any:
    """All layers but the multi-token-prediction layers, with ``experts`` experts of each routed layer."""
    count: Any = 0.0
    for kind in kinds(model):
        if kind.place != "end":
            routed = experts * expert_parameters(model) if kind.routed else 0.0
            count = count + kind.count * (common_parameters(model, kind) + routed)
    return count


def total_parameters(model: Model) -> Any:
    """Every parameter once; multi-token-prediction layers are left out, as in published counts."""
    return _layers(model, float(model.num_experts)) + embedding_parameters(model) + head_parameters(model) - tied_parameters(model)


def active_parameters(model: Model) -> Any:
    """Parameters that process a token: all but the experts it is not routed to; both embeddings are counted."""
    return _layers(model, visited(model)) + embedding_parameters(model) + head_parameters(model) - tied_parameters(model)


def parameters_at_tokens(model: Model, seq_len: Any) -> Any:
    """Active parameters, each by the tokens that it sees for a token of the sequence: a tower's see the tokens of its items."""
    count: Any = active_parameters(model)
    for kind in kinds(model):
        if kind.tower is not None:
            seen = kind.tower.tokens * kind.tower.items / seq_len
            count = count - (1.0 - seen) * kind.count * common_parameters(model, kind)
    return count


def count_problem(model: Model, tolerance: float = 0.005) -> str | None:
    """A message where the dimensions do not give the published count, else None."""
    if model.published_parameters is None:
        return None
    counted = float(total_parameters(model))
    off = counted / model.published_parameters.value - 1.0
    if abs(off) <= tolerance:
        return None
    return f"{model.name}: dimensions give {counted:,.0f} parameters, {off:+.2%} from the published {model.published_parameters.text}"


def matmul_per_layer(model: Model, kind: Kind) -> Any:
    """Weights of one layer that multiply each token: mixer, router, the MLP or the experts it visits."""
    model = sized(model, kind)
    count = kind.mixer.matmul(model) + residual_matmul(model, kind)
    wide = 2.0 + float(model.gated_mlp)
    if kind.place == "end":
        count = count + 2.0 * model.hidden_size * model.hidden_size
    if not kind.routed:
        return count + wide * model.hidden_size * common_width(model, kind)
    count = count + wide * expert_width(model) * visited(model) * model.moe_intermediate_size + latent_projections(model)
    count = count + wide * model.hidden_size * common_width(model, kind)
    return count + model.hidden_size * (model.num_experts + model.zero_expert_num)


def weights_of_modules(model: Model) -> dict[str, Any]:
    """Weights that multiply each token in the modules that selective recomputation may name, by the column of the plan."""
    found: dict[str, Any] = dict.fromkeys(("recompute_up", "recompute_mlp", "recompute_moe", "recompute_shared"), 0.0)
    for kind in kinds(model):
        local, count = sized(model, kind), kind.count
        common = (2.0 + float(local.gated_mlp)) * local.hidden_size * common_width(local, kind)
        if kind.mixer.attends and local.kv_lora_rank:
            up = local.kv_lora_rank * (local.qk_nope_head_dim + local.v_head_dim)
            up = up + (local.q_lora_rank or local.hidden_size) * (local.qk_nope_head_dim + local.qk_rope_head_dim)
            found["recompute_up"] += count * local.num_attention_heads * up
        if kind.routed:
            found["recompute_moe"] += count * (matmul_per_layer(local, kind) - kind.mixer.matmul(local) - residual_matmul(local, kind))
            found["recompute_shared"] += count * common
        elif kind.has_mlp:
            found["recompute_mlp"] += count * common
    return found


def attending_layers(model: Model) -> float:
    """Layers whose mixer is attention, those for further tokens included."""
    count = 0.0
    for kind in kinds(model):
        count += kind.count if kind.attends_along else 0.0
    return count


def matmul_parameters(model: Model) -> Any:
    """Parameters that multiply activations once a token: the layers' matrices and the output projections."""
    count: Any = 0.0
    for kind in kinds(model):
        if kind.tower is None:
            count = count + kind.count * matmul_per_layer(model, kind)
    if model.head == "masked":
        count = count + model.hidden_size * model.hidden_size
    return count + head_weights(model)


def head_weights(model: Model) -> Any:
    """Weights of the output layers that multiply each token; one class for a whole sequence counts nothing."""
    return 0.0 if model.head == "class" else (1.0 + model.num_nextn_predict_layers) * output_matrix(model)


def attention_width(model: Model) -> float:
    """Heads times head_dim, mean of queries-and-keys and values, and of the layers that attend."""
    if not model.layer_groups:
        return float(model.num_attention_heads) * core_head_dim(model)
    attending = [kind for kind in kinds(model) if kind.attends_along]
    width = sum(kind.count * sized(model, kind).num_attention_heads * core_head_dim(sized(model, kind)) for kind in attending)
    return float(width / max(attending_layers(model), 1.0))


def _with_layers(count: Any, model: Model, stage: Stage, of_layer: Callable[[Model, Kind], Any]) -> Any:
    """Add ``of_layer`` of every layer of a stage to ``count``."""
    for kind in kinds(model):
        count = count + layers_of(stage, kind, model) * of_layer(model, kind)
    return count


@once_for_stage
def stage_common(model: Model, stage: Stage) -> Any:
    """Parameters of a pipeline stage outside its experts; tied weights count once where first and last stage are one."""
    return _with_layers(stage_tables(model, stage), model, stage, common_parameters)


@once_for_stage
def stage_routed(model: Model, stage: Stage) -> Any:
    """Parameters of the experts of a pipeline stage."""
    return _with_layers(0.0 * stage.layers, model, stage, routed_parameters)


@lru_cache(256)
def linear_parameters(model: Model, kind: Kind) -> Any:
    """Weights of a layer that a narrow format applies to: linear layers outside the experts, without norms, router and wide layers."""
    if kind.wide:
        return 0.0
    model = sized(model, kind)
    width = 0 if kind.routed and SHARED in model.wide_parts else common_width(model, kind)
    count = kind.mixer.matmul(model) + (2.0 + float(model.gated_mlp)) * model.hidden_size * width
    count = count + (latent_projections(model) if kind.routed else 0.0)
    return count + (2.0 * model.hidden_size * model.hidden_size if kind.place == "end" else 0.0)


@lru_cache(256)
def linear_experts(model: Model, kind: Kind) -> Any:
    """Weights of the linear layers of all routed experts of a layer."""
    if kind.wide or not kind.routed:
        return 0.0
    return model.num_experts * (2.0 + float(model.gated_mlp)) * expert_width(model) * model.moe_intermediate_size


def stage_linear(model: Model, stage: Stage, trained: bool = False) -> tuple[Any, Any, Any]:
    """Weights of a stage's narrow linear layers: outside experts, in experts, and of the former the part that tensor ranks do not split."""
    common: Any = 0.0 * stage.layers
    routed: Any = 0.0 * stage.layers
    entire: Any = 0.0 * stage.layers
    for kind in kinds(model):
        if trained and not kind.trained:
            continue
        layers = layers_of(stage, kind, model)
        common = common + layers * linear_parameters(model, kind)
        routed = routed + layers * linear_experts(model, kind)
        if not kind.wide:
            entire = entire + layers * kind.mixer.replicated_linear(model)
    return common, routed, entire


@lru_cache(256)
def replicated_parameters(model: Model, kind: Kind) -> Any:
    """Parameters of a layer that tensor parallelism does not split: norms, router, and down-projections of latent attention."""
    model = sized(model, kind)
    count = norms_of(model, kind) * norm_parameters(model) + residual_parameters(model, kind)
    for part in kind.mixer.replicated(model):
        count = count + part
    if kind.routed:
        count = count + router_parameters(model) + latent_projections(model) + latent_norm(model)
    return count


@once_for_stage
def stage_replicated(model: Model, stage: Stage) -> Any:
    """Parameters of a stage that tensor parallelism does not split: of its layers, learned positions, and the last norm."""
    positions = embedding_parameters(model) - (0.0 if model.products else table_parameters(model)) - per_layer_table(model)
    count = stage.embedding * positions + stage.head * (norm_parameters(model) if model.final_norm else 0.0)
    return _with_layers(count, model, stage, replicated_parameters)


def per_layer_table(model: Model) -> float:
    """The table of all layers' second embeddings, which ranks split by rows as they split the first."""
    rows = model.vocab_size_per_layer_input or model.vocab_size
    return float(model.num_hidden_layers * model.hidden_size_per_layer_input * rows)


@once_for_stage
def stage_tables(model: Model, stage: Stage) -> Any:
    """Embedding and output layer of a stage; the stage with layers for further tokens has the embedding too."""
    count = stage.embedding * embedding_parameters(model) + stage.head * head_parameters(model)
    count = count - np.minimum(stage.embedding, stage.head) * tied_parameters(model)
    if model.num_nextn_predict_layers:  # none is needed on a stage with the embedding, or with a tied output layer
        further = stage.head if stage.further is None else stage.further
        table = np.maximum(stage.embedding, stage.head) if model.tie_word_embeddings else stage.embedding
        count = count + np.maximum(further - table, 0.0) * table_parameters(model)
    return count
