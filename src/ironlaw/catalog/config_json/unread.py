"""Refuse a field of ``config.json`` that no reader read and that may change the model, at any depth of the file.

An unread field passes where its value is empty, zero or false, or where it has no parameters: a name, a length, an id of a token, a
setting of sampling, of a loss or of a library. Any other object, list or whole number is refused; a rate, a word or a switch is
refused where its name concerns sizes or parts. So an unknown field is refused, not dropped.
"""

from __future__ import annotations

import re
from typing import Any

from ironlaw.catalog.config_json.fields import Fields
from ironlaw.errors import UnsupportedError, quote

# how a word in a field's name begins -> what the model then has: RARE features first, then COMMON ones
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
# feature -> types that have it: a field of another type is refused with the types whose readers come near
READ_WITH = {
    "linear attention": "qwen3_next, kimi_linear or minimax",
    "a hybrid of layers": "nemotron_h, bamba, granitemoehybrid or jamba",
    "layers of different sizes": "nemotron-nas, mimo_v2_flash, gemma4_text or openelm",
    "a state-space layer": "nemotron_h, bamba, mamba2 or jamba",
    "Mamba-1": "mamba, falcon_mamba or jamba",
    "compressed attention": "deepseek_v4",
    "sparse attention": "minimax_m3 or deepseek_v32",
    "sparse attention with an indexer": "deepseek_v32, minimax_m3 or deepseek_v4",
    "a low-rank attention output": "deepseek_v4",
    "hyper-connections": "deepseek_v4",
    "attention over residuals": "kimi_linear",
    "values equal to keys": "gemma4_text",
    "key-value sharing across layers": "gemma4_text",
    "per-layer embeddings": "gemma4_text",
    "gated attention output": "qwen3_next, afmoe, kimi_linear or step3p5",
    "attention in both directions": "gemma, gemma3_text or gemma4_text (images alone)",
    "a mixture of experts": "mixtral, qwen3_moe or deepseek_v3",
    "latent attention (MLA)": "deepseek_v3 or kimi_linear",
    "multi-token prediction": "deepseek_v3, glm4_moe or mimo; --mtp-layers adds such layers to any model",
    "attention sinks": "gpt_oss or deepseek_v4",
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
    "adapter attention attn bias block blocks bottleneck branch branches chunk codebook codebooks conv cross cycles decoder depth dim "
    "embed embedding embeddings embeds encoder engram expansion ffn gate gated gating group groups hc head heads hidden hybrid index inner "
    "intermediate key keys kv latent layer layers lightning linear loop loops memory mlp module modules mult network ngram norm norms "
    "pattern proj projection projector qk queries query rank recurrent repeat repeats residual router share shared size skip state states "
    "steps stream streams tower towers types value values vocab width window "
)
WORDS = frozenset(_WORDS.split())

# such names whose fields have no parameters
_WITHOUT_PARAMETERS = (
    "add_classification_head apply_query_key_layer_scaling attention_multiplier attention_softmax_in_fp32 attention_value_scale "
    "attn_implementation attn_scale attn_temperature_tuning attn_type_list auto_map chunk_size chunk_size_feed_forward class_num "
    "compression_config decoder_start_token_id dim_model_base embedding_fraction embedding_multiplier enable_moe_fp32_combine "
    "encoder_no_repeat_ngram_size ep_size fp32_residual_connection full_attn_mod group_limited_greedy group_norm_size id2label init_std "
    "initial_context_length is_decoder is_encoder_decoder key_multiplier label2id layer_norm_eps layer_norm_epsilon layer_switch "
    "layernorm_epsilon length_penalty logits_scaling max_length max_sequence_length max_window_layers mla_scale_kv_lora "
    "mla_scale_q_lora mlp_type moe_aux_loss_coef moe_capacity moe_drop_tokens moe_gate moe_norm_min moe_random_routing_dropped_token "
    "moe_renormalize moe_routed_scaling_factor moe_router_activation_func moe_router_enable_shared_expert moe_router_scaling_factor "
    "moe_use_hard_gate moe_z_loss_coef n_group no_repeat_ngram_size no_rope_layer_interval no_rope_layers norm_after_topk norm_eps "
    "norm_epsilon norm_head norm_softmax norm_topk_prob norm_type normalization_layer_name num_attention_groups num_beam_groups "
    "num_beams num_expert_group num_expert_groups num_hash_functions num_image_tokens num_labels num_limited_groups num_logits_to_keep "
    "num_media_embeds num_return_sequences num_virtual_tokens order_of_interleaved_layers org_vocab_size "
    "original_max_position_embeddings output_attentions output_hidden_states output_router_logits position_embedding_type "
    "quantization_config query_pre_attn_scalar reorder_and_upcast_attn rescale_prenorm_residual residual_in_fp32 residual_multiplier "
    "rms_norm_eps rms_norm_type rope_parameters rope_scaling rotary_dim router_aux_loss_coef scale_attention_softmax_in_fp32 "
    "scale_attn_by_inverse_layer_idx scale_attn_weights scale_depth scale_embedding scale_embeddings skip_bias_add skip_bias_add_qkv "
    "sliding_window_size swiglu_limit task_specific_params tie_encoder_decoder time_step_rank topk_group topk_method "
    "transformers_version use_embedding_sharing use_flash_attention use_flash_attn use_flash_attn2 use_gated_activation use_logn_attn "
    "use_parallel_block use_parallel_embedding use_parallel_residual vit_norm_type "
)
WITHOUT_PARAMETERS = frozenset(_WITHOUT_PARAMETERS.split())

# names of fields of a library, of sampling, or of positions
_SETTINGS = (
    "architectures auto_map bad_words_ids begin_suppress_tokens custom_pipelines diversity_penalty early_stopping forced_decoder_ids "
    "generation_config ignore_index indexer_rope_interleave initializer_factor keys_to_ignore_at_inference logits_to_keep loss_type "
    "mamba_ssm_cache_dtype max_new_tokens min_length num_ctx peft_config position_id_per_seconds prefix pretraining_tp pruned_heads "
    "quantization remove_invalid_values repetition_penalty return_dict rope_interleave rope_local_base_freq rope_pct rope_percent "
    "rope_ratio rotary_base rotary_emb_base rotary_pct seed seq_aux suppress_tokens temperature time_step_floor time_step_limit "
    "time_step_max time_step_min tokenizer_class tokenizer_kwargs tokenizer_name top_k top_p torchscript transformers.js_config "
    "typical_p use_bfloat16 use_cache use_unified_vision_chunk "
)
SETTINGS = frozenset(_SETTINGS.split())

# endings of such names: rates, constants of a formula, choices by name, settings of a loss
ENDINGS = (
    "_eps", "_epsilon", "_coef", "_coeff", "_alpha", "_dropout", "_pdrop", "_prob", "_drop", "_range", "_std", "_theta", "_softcapping",
    "_dtype", "_token_id", "_token_ids", "_token_index", "_implementation", "_version", "_fusion", "_func", "_fn", "_act",
    "_activation", "_scaling_factor",
)  # fmt: skip

# a name of only these words, "context", "seq" or "position" among them, is a length in tokens: context_window_size, max_seq_len
_LENGTHS = (
    "audio context ctx embeddings image initial len length max maximum model n original position positions pretrained seq seqlen sequence "
    "size text train trained training video window "
)
_LENGTH = frozenset(_LENGTHS.split())
_OF_TOKENS = frozenset(["context", "ctx", "position", "positions", "seq", "seqlen", "sequence"])
EMPTY: tuple[Any, ...] = (None, 0, "", False, [], {})
FULL = ("full_attention", "attention", "global_attention")


def refuse_unread(f: Fields, rare_only: bool = False) -> None:
    """Raise for the first unread field that may change the model, here or in an object that was read.

    With ``rare_only`` for fields of RARE features alone.
    """
    unread = _unread(f)
    for part, feature in (RARE if rare_only else RARE | COMMON).items():
        for key in unread:
            if re.search(rf"(^|_){part}", key):
                raise refused(f, key, feature)
    for key in () if rare_only else unread:
        if _may_change(key, f.config[key]):
            value = quote(f.config[key])
            raise UnsupportedError(f"{f.where}: unknown field '{f.prefix}{key}' = {value}: it may change the parameters of the model")
    for inner in () if rare_only else f.inner_fields:
        refuse_unread(inner)


def unread_fields(f: Fields) -> list[str]:
    """The fields for which ``refuse_unread`` raises, each with the names of the objects around it."""
    here = [key for key in _unread(f) if _may_change(key, f.config[key]) or any(re.search(rf"(^|_){part}", key) for part in RARE | COMMON)]
    return [f"{f.prefix}{key}" for key in here] + [name for inner in f.inner_fields for name in unread_fields(inner)]


def _unread(f: Fields) -> list[str]:
    """Fields that were not read and have a value; a network explains the fields beside it, and comes first."""
    unread = [key for key, value in f.config.items() if key not in f.read and value not in EMPTY and not key.startswith("_")]
    unread = [key for key in unread if not _without_parameters(f, key) and not _is_constant(f, key)]
    return sorted(unread, key=lambda key: not isinstance(f.config[key], dict))


def refused(f: Fields, key: str, feature: str) -> UnsupportedError:
    """The error for a field of a feature that the type's reader does not know, with the types whose readers do."""
    near = READ_WITH.get(feature)
    return UnsupportedError(f"{f.refuse(key, feature)}" + (f"; read with model_type {near}" if near else ""))


def _without_parameters(f: Fields, key: str) -> bool:
    """Whether a field has no parameters, by its name, or because every layer of the file sees all tokens."""
    if key in WITHOUT_PARAMETERS or key in SETTINGS or _is_length(key):
        return True
    listed = f.config.get("layer_types")
    full = isinstance(listed, list) and all(kind in FULL for kind in listed)
    return key in ("layer_types", "sliding_window", "attention_chunk_size") and full


def _is_constant(f: Fields, key: str) -> bool:
    """Whether the ending of a name says that the field is a rate, a constant of a formula or a choice by name."""
    return key.endswith(ENDINGS) and not isinstance(f.config[key], dict)


def _is_length(key: str) -> bool:
    words = set(key.lower().split("_"))
    return words <= _LENGTH and not words.isdisjoint(_OF_TOKENS)


def _may_change(key: str, value: Any) -> bool:
    """Whether a field may change the parameters: an object, a list or a whole number may; others where a word of their name says so."""
    words = re.split(r"[_\W]+", key.lower())
    counts = isinstance(value, (dict, list)) or (isinstance(value, int) and not isinstance(value, bool))
    return counts or words[0] in ("n", "num") or not WORDS.isdisjoint(words)
