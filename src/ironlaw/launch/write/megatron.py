"""The arguments of Megatron-LM for a plan and its model, each with its reason; and what they do not say.

The plan's are those of ``launch.flags``. The model's are read back by ``launch.megatron``: a field of the model that comes back otherwise
is one that they cannot say.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping
from typing import Any

from ironlaw.catalog.model import Model
from ironlaw.errors import IronlawError
from ironlaw.launch.flags import NOTE, flags_of
from ironlaw.launch.megatron.arguments import Arguments
from ironlaw.launch.megatron.model import read_model
from ironlaw.launch.megatron.tables import MAPPED
from ironlaw.launch.shell import read_command

# fields that change neither time nor memory of training, or follow from others
_NOT_COMPARED = {
    "name", "title", "source", "family", "published_parameters", "published_active_parameters", "frozen_layers", "scores",
    "wide_layers_at_start", "wide_layers_at_end", "wide_parts", "sliding_window_layers", "vocab_size", "max_position_embeddings",
}  # fmt: skip
_ACTIVATIONS = {
    (True, "silu"): "--swiglu", (False, "relu2"): "--squared-relu", (True, "gelu"): "--quick-geglu", (False, "gelu"): "",
}  # fmt: skip
_NORMS = {"layernorm": "LayerNorm", "rmsnorm": "RMSNorm"}
_POSITIONS = {"rope": "rope", "learned": "learned_absolute", "none": "none"}


def model_arguments(model: Model, length: int) -> str:
    """The arguments of a model for sequences of ``length`` tokens; the vocabulary is that of the record, without padding."""
    return " ".join(part for part in (*_dense(model, length), *_attention(model), *_mixture(model)) if part)


def _dense(model: Model, length: int) -> Iterator[str]:
    """Sizes, norms, activation, embedding and biases."""
    yield f"--num-layers {model.num_hidden_layers} --hidden-size {model.hidden_size} --ffn-hidden-size {model.intermediate_size}"
    yield f"--num-attention-heads {model.num_attention_heads}"
    yield f"--vocab-size {model.vocab_size} --make-vocab-size-divisible-by 1"
    yield f"--max-position-embeddings {max(model.max_position_embeddings, length)}"
    yield f"--normalization {_NORMS.get(model.norm, 'RMSNorm')}"
    yield f"--position-embedding-type {_POSITIONS.get(model.position_embedding, 'rope')}"
    yield _ACTIVATIONS.get((model.gated_mlp, model.hidden_act), "--swiglu" if model.gated_mlp else "")
    yield "" if model.tie_word_embeddings else "--untie-embeddings-and-output-weights"
    yield "" if model.mlp_bias or model.attention_output_bias else "--disable-bias-linear"
    yield "--add-qkv-bias" if model.query_key_value_bias and not model.attention_output_bias else ""
    yield "--attention-dropout 0.1 --hidden-dropout 0.1" if model.dropout else "--attention-dropout 0 --hidden-dropout 0"
    yield f"--mtp-num-layers {model.num_nextn_predict_layers}" if model.num_nextn_predict_layers else ""


def _attention(model: Model) -> Iterator[str]:
    """Heads, latents, windows and sinks."""
    if model.kv_lora_rank:
        yield f"--multi-latent-attention --kv-lora-rank {model.kv_lora_rank} --qk-head-dim {model.qk_nope_head_dim}"
        yield f"--qk-pos-emb-head-dim {model.qk_rope_head_dim} --v-head-dim {model.v_head_dim}"
        yield f"--q-lora-rank {model.q_lora_rank}" if model.q_lora_rank else ""
    else:
        yield f"--kv-channels {model.head_dim}"
        grouped = model.num_key_value_heads != model.num_attention_heads
        yield f"--group-query-attention --num-query-groups {model.num_key_value_heads}" if grouped else ""
        yield "--qk-layernorm" if model.qk_norm else ""
    if model.sliding_window:
        yield f"--window-size {model.sliding_window - 1},0"
        local = model.sliding_window_layers
        if local and local != model.num_hidden_layers:
            wide = model.num_hidden_layers - local
            yield (
                f"--window-attn-skip-freq ([1]*{local}+[0]*{wide})"
                if model.num_hidden_layers % wide
                else (f"--window-attn-skip-freq {model.num_hidden_layers // wide}")
            )
    yield "--softmax-type learnable" if model.attention_sinks else ""


def _mixture(model: Model) -> Iterator[str]:
    """Experts, their router, and which layers have them; nothing for a dense model."""
    if not model.num_experts:
        return
    yield f"--num-experts {model.num_experts} --moe-router-topk {model.num_experts_per_tok}"
    yield f"--moe-ffn-hidden-size {model.moe_intermediate_size or model.intermediate_size}"
    if shared := model.shared_expert_intermediate_size:
        yield f"--moe-shared-expert-intermediate-size {shared}" + (" --moe-shared-expert-gate" if model.shared_expert_gate else "")
    if model.n_group > 1:
        yield f"--moe-router-num-groups {model.n_group} --moe-router-group-topk {model.topk_group}"
    yield "--moe-router-enable-expert-bias --moe-router-score-function sigmoid" if model.router_bias else ""
    front, every, layers = model.first_k_dense_replace, model.moe_layer_freq, model.num_hidden_layers
    if front or every > 1:
        rest = layers - front
        pattern = (
            f"[1]*{rest}" if every == 1 else f"([1]+[0]*{every - 1})*{rest // every}" + (f"+[0]*{rest % every}" if rest % every else "")
        )
        yield f"--moe-layer-freq {f'([0]*{front}+{pattern})' if front else f'({pattern})'}"


def unsaid_of_model(model: Model, arguments: str, tp: int) -> Iterator[str]:
    """The fields of a model that its arguments do not give back."""
    try:
        read = read_model(Arguments(read_command(shlex.join(arguments.split()))), tp)
    except IronlawError as error:
        yield f"the model {model.name}: {error}"
        return
    for name, field in model.fields.items():
        value = getattr(model, name)
        found = read.get(name, None if field.required else field.default_value())
        if name not in _NOT_COMPARED and found != value and not _same_experts(model, name, found):
            yield f"{name} {value} of the model"


def _same_experts(model: Model, name: str, found: Any) -> bool:
    """True where a record leaves out what a mixture has from its other sizes, or what a dense model has not."""
    if name in ("moe_intermediate_size",):
        return bool(found == model.intermediate_size)
    if name in ("num_key_value_heads", "head_dim") and model.kv_lora_rank:
        return True
    return name == "dropout" and not model.dropout


def megatron_facts(plan: Mapping[str, Any], model: Model) -> tuple[dict[str, Any], list[str]]:
    """Megatron-LM's arguments of a plan and its model by name, the model's first, and what they do not say."""
    arguments = model_arguments(model, int(plan["seq_len"]))
    rows = flags_of({**plan, "framework": plan["framework"]}, model.num_hidden_layers, model.num_nextn_predict_layers)
    flags = next((row["flags"] for row in rows if row["file"] != NOTE), "")
    unsaid = [part for row in rows if row["file"] == NOTE for part in row["flags"].split("; ")]
    unsaid += unsaid_of_model(model, arguments, int(plan["tp"]))
    values = read_command(f"{shlex.join(arguments.split())} {flags}")
    return {name: " ".join(value) if isinstance(value, list) else value for name, value in values.items()}, unsaid


def option_of(argument: str) -> str:
    """The option that an argument sets.

    >>> option_of("--tensor-model-parallel-size")
    'tp'
    """
    meaning = MAPPED.get(argument, "")
    return re.split(r"[ ,]", meaning)[0] if meaning and not meaning.startswith("approximated") else ""
