"""Refuse a field of ``config.json`` that no reader read and that may change the model.

A field with a size or a part of the model in its name, and a value that is not empty, zero or false, must be read, or listed here as one
without parameters. So an unknown field is refused, not dropped.
"""

from __future__ import annotations

import re
from typing import Any

from ironlaw.catalog.config_json.fields import Fields
from ironlaw.errors import UnsupportedError, quote

# part of a field name -> what the model then has: RARE features first, then COMMON ones
RARE = {
    "linear_attn": "linear attention",
    "full_attention_interval": "linear attention",
    "linear_num_": "linear attention",
    "linear_conv_": "linear attention",
    "linear_head": "linear attention",
    "hybrid_override_pattern": "a hybrid of layers",
    "layers_block_type": "a hybrid of layers",
    "hybrid_layer_pattern": "layers of different sizes",
    "block_configs": "layers of different sizes",
    "global_head_dim": "layers of different sizes",
    "swa_head_dim": "layers of different sizes",
    "mamba": "a state-space layer",
    "ssm_": "a state-space layer",
    "state_size": "Mamba-1",
    "compress_ratios": "compressed attention",
    "sparse_attention": "sparse attention",
    "index_topk": "sparse attention with an indexer",
    "index_n_heads": "sparse attention with an indexer",
    "o_lora_rank": "a low-rank attention output",
    "hc_mult": "hyper-connections",
    "attn_res_": "attention over residuals",
    "cross_attention": "cross-attention",
    "k_eq_v": "values equal to keys",
    "kv_shared_layers": "key-value sharing across layers",
    "per_layer_input": "per-layer embeddings",
    "output_gate": "gated attention output",
    "bidirectional": "attention in both directions",
}
COMMON = {
    "expert": "a mixture of experts",
    "moe": "a mixture of experts",
    "lora_rank": "latent attention (MLA)",
    "qk_rope_head_dim": "latent attention (MLA)",
    "nextn_predict": "multi-token prediction",
    "mtp": "multi-token prediction",
    "sink": "attention sinks",
}

# a name with one of these words concerns sizes or parts
_WORDS = (
    "adapter attention attn bias block blocks chunk conv cross cycles decoder depth dim embedding embeddings encoder engram expansion "
    "ffn gate gated gating group groups hc head heads hidden hybrid index inner intermediate kv latent layer layers lightning linear "
    "loop loops memory mlp mult ngram norm norms pattern qk rank recurrent residual share shared size skip state types vocab width "
    "window "
)
WORDS = frozenset(_WORDS.split())

# such names whose fields have no parameters
_WITHOUT_PARAMETERS = (
    "add_classification_head apply_query_key_layer_scaling attention_multiplier attention_softmax_in_fp32 attention_value_scale "
    "attn_scale attn_temperature_tuning attn_type_list auto_map chunk_size chunk_size_feed_forward class_num decoder_start_token_id "
    "dim_model_base embedding_fraction embedding_multiplier enable_moe_fp32_combine ep_size fp32_residual_connection "
    "group_limited_greedy id2label init_std initial_context_length key_multiplier label2id layer_norm_eps layer_norm_epsilon "
    "layernorm_epsilon length_penalty logits_scaling max_length max_sequence_length max_window_layers moe_drop_tokens moe_norm_min "
    "moe_random_routing_dropped_token n_group no_rope_layer_interval no_rope_layers norm_after_topk norm_eps norm_epsilon norm_head "
    "norm_softmax norm_topk_prob norm_type num_attention_groups num_beam_groups num_expert_group num_media_embeds "
    "original_max_position_embeddings output_attentions output_hidden_states query_pre_attn_scalar quantization_config "
    "compression_config residual_multiplier rescale_prenorm_residual rms_norm_eps rms_norm_type rope_parameters rope_scaling "
    "rotary_dim scale_attention_softmax_in_fp32 scale_attn_by_inverse_layer_idx scale_attn_weights scale_depth scale_embedding "
    "scale_embeddings swiglu_limit time_step_rank topk_group use_flash_attn use_flash_attn2 use_flash_attention use_parallel_residual "
    "residual_in_fp32 group_norm_size router_aux_loss_coef moe_aux_loss_coef moe_z_loss_coef moe_router_scaling_factor "
    "moe_routed_scaling_factor moe_renormalize moe_router_activation_func topk_method output_router_logits no_repeat_ngram_size "
    "encoder_no_repeat_ngram_size tie_encoder_decoder is_decoder attn_implementation transformers_version vit_norm_type "
    "num_logits_to_keep sliding_window_size task_specific_params reorder_and_upcast_attn skip_bias_add skip_bias_add_qkv "
    "full_attn_mod layer_switch order_of_interleaved_layers use_embedding_sharing use_gated_activation use_parallel_block "
    "use_parallel_embedding position_embedding_type mlp_type moe_capacity moe_gate moe_use_hard_gate org_vocab_size "
    "moe_router_enable_shared_expert use_logn_attn num_limited_groups num_expert_groups mla_scale_q_lora mla_scale_kv_lora "
    "normalization_layer_name num_beams num_return_sequences num_labels is_encoder_decoder num_hash_functions num_virtual_tokens "
)
WITHOUT_PARAMETERS = frozenset(_WITHOUT_PARAMETERS.split())

# endings of such names: rates, constants of a formula, choices by name, settings of a loss
ENDINGS = (
    "_eps", "_epsilon", "_coef", "_coeff", "_alpha", "_dropout", "_pdrop", "_prob", "_drop", "_range", "_std", "_theta", "_softcapping",
    "_dtype", "_token_id", "_token_index", "_implementation", "_fusion", "_func", "_fn", "_act", "_activation", "_scaling_factor",
)  # fmt: skip
EMPTY: tuple[Any, ...] = (None, 0, "", False, [], {})


def refuse_unread(f: Fields, rare_only: bool = False) -> None:
    """Raise for the first unread field that may change the model; with ``rare_only`` for fields of RARE features alone."""
    unread = [key for key, value in f.config.items() if key not in f.read and key not in WITHOUT_PARAMETERS and value not in EMPTY]
    for part, feature in (RARE if rare_only else RARE | COMMON).items():
        for key in unread:
            if part in key and not key.endswith(ENDINGS):
                raise f.refuse(key, feature)
    for key in () if rare_only else unread:
        if not key.startswith("_") and not key.endswith(ENDINGS) and _concerns_size(key, f.config[key]):
            value = quote(f.config[key])
            raise UnsupportedError(f"{f.where}: unknown field '{f.prefix}{key}' = {value}: its name concerns sizes or parts of the model")


def _concerns_size(key: str, value: Any) -> bool:
    words = re.split(r"[_\W]+", key.lower())
    return isinstance(value, dict) or words[0] in ("n", "num") or not WORDS.isdisjoint(words)
