"""A model's dimensions from Megatron-LM arguments; an absent argument has Megatron's default."""

from __future__ import annotations

from typing import Any

from ironlaw.errors import QuestionError, UnsupportedError, ValueRangeError
from ironlaw.launch.megatron.arguments import Arguments, whole_number
from ironlaw.launch.megatron.patterns import MAX_LENGTH, routed_layers

GPT2_VOCABULARY = 50257


def count_vocabulary(a: Arguments, tp: int) -> int:
    """Rows of the embedding: the tokenizer's, padded so that tensor-parallel ranks have equal shares."""
    padded = a.whole("padded-vocab-size")
    if padded is not None:
        return padded
    multiple = (a.whole("make-vocab-size-divisible-by", 128) or 128) * tp
    size = a.whole("vocab-size")
    if size is None:
        a.rule(f"no --vocab-size: {GPT2_VOCABULARY:,}, padded to a multiple of {multiple // tp} * tp")
        size = GPT2_VOCABULARY
    elif size % multiple:
        a.rule(f"vocabulary padded to a multiple of {multiple // tp} * tp")
    return -(-size // multiple) * multiple


def read_model(a: Arguments, tp: int) -> dict[str, Any]:
    """The model's dimensions, by the fields of ``catalog.model.Model``."""
    layers, hidden, heads = a.needed("num-layers", "encoder-num-layers"), a.needed("hidden-size"), a.needed("num-attention-heads")
    if layers > MAX_LENGTH:
        raise ValueRangeError(f"--num-layers is {layers}, must be at most {MAX_LENGTH:,}")
    gated, bias = a.has("swiglu") or a.has("quick-geglu"), not a.has("disable-bias-linear")
    usual = int(4 * hidden * 2 / 3 / 64) * 64 if a.has("swiglu") else 4 * hidden
    ffn = a.whole("ffn-hidden-size", usual) or usual
    head = a.whole("kv-channels")
    if head is None and hidden % heads:
        raise QuestionError(f"--num-attention-heads {heads} does not divide --hidden-size {hidden}: Megatron needs --kv-channels")
    model: dict[str, Any] = {
        "hidden_size": hidden,
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
        "num_key_value_heads": (a.whole("num-query-groups", 1) or 1) if a.has("group-query-attention") else heads,
        "head_dim": head or hidden // heads,
        "intermediate_size": ffn,
        "vocab_size": count_vocabulary(a, tp),
        "max_position_embeddings": a.whole("max-position-embeddings") or a.needed("seq-length", "encoder-seq-length"),
        "tie_word_embeddings": not a.has("untie-embeddings-and-output-weights"),
        "gated_mlp": gated,
        "hidden_act": "silu" if a.has("swiglu") else "relu2" if a.has("squared-relu") else "gelu",
        "norm": {"LayerNorm": "layernorm", "RMSNorm": "rmsnorm"}[a.one_of("normalization", ("LayerNorm", "RMSNorm"))],
        "qk_norm": a.has("qk-layernorm") and not a.has("multi-latent-attention"),
        "position_embedding": _positions(a),
        "query_key_value_bias": bias or a.has("add-qkv-bias"),
        "attention_output_bias": bias,
        "mlp_bias": bias,
        "attention_sinks": a.one_of("softmax-type", ("vanilla", "learnable", "off-by-one")) == "learnable",
    }
    drops = a.number("attention-dropout", 0.1), a.number("hidden-dropout", 0.1)
    model["dropout"] = max(drops) > 0
    if (drops[0] > 0) != (drops[1] > 0):
        a.rule("approximated: dropout is counted in attention and in residuals, although only one has it")
    model |= _window(a, layers) | _mixture(a, layers, ffn, bias) | _latent(a)
    if model.get("kv_lora_rank"):
        model["num_key_value_heads"] = heads
        model["head_dim"] = model["qk_nope_head_dim"] + model["qk_rope_head_dim"]
    if predicting := a.whole("mtp-num-layers", 0, least=0):
        model["num_nextn_predict_layers"] = predicting
    return model


def _positions(a: Arguments) -> str:
    """The kind of position embedding."""
    if a.has("use-rotary-position-embeddings"):
        return "rope"
    kind = a.one_of("position-embedding-type", ("learned_absolute", "rope", "mrope", "yarn", "relative", "none"))
    if kind == "relative":
        raise UnsupportedError("--position-embedding-type relative: attention biases are not modelled")
    if kind == "none":
        return "none"
    return "learned" if kind == "learned_absolute" else "rope"


def _window(a: Arguments, layers: int) -> dict[str, Any]:
    """The sliding window, and the number of layers that have it."""
    if not a.has("window-size"):
        return {}
    back = a.text("window-size").strip("() ").replace(",", " ").partition(" ")[0]
    if back == "-1":
        return {}
    skip = a.text("window-attn-skip-freq")
    if not skip:
        local = layers
    elif "[" in skip:
        local = sum(routed_layers(skip, layers, "--window-attn-skip-freq"))
    else:
        every = whole_number(skip, "--window-attn-skip-freq")
        local = layers - layers // every
    return {"sliding_window": whole_number(back, "--window-size", 0) + 1, "sliding_window_layers": local}


def _mixture(a: Arguments, layers: int, ffn: int, bias: bool) -> dict[str, Any]:
    """Sizes of the experts, and which layers are routed; no fields for a dense model."""
    experts = a.whole("num-experts", 0, least=0)
    if not experts:
        return {}
    pattern = routed_layers(a.text("moe-layer-freq", "1"), layers, "--moe-layer-freq")
    front = next((i for i, routed in enumerate(pattern) if routed), layers)
    count = sum(pattern)
    every = next((f for f in range(1, layers + 1) if count and (layers - front) // f == count), None)
    if every is None and count * max(layers // max(count, 1), 1) <= layers:
        front, every = 0, next((f for f in range(1, layers + 1) if count and layers // f == count), None)
    if every is None:
        raise UnsupportedError(
            f"--moe-layer-freq {a.text('moe-layer-freq')}: not modelled: its {count} routed layers are not every Nth after dense ones"
        )
    if every > 1 and pattern != [i >= front and (i - front) % every == 0 for i in range(layers)]:
        a.rule("approximated: routed layers are spread evenly over the stages")
    factor = a.number("moe-expert-capacity-factor", 0.0)
    mixture: dict[str, Any] = {
        "num_experts": experts,
        "num_experts_per_tok": a.whole("moe-router-topk", 2),
        **_groups(a, experts),
        "moe_intermediate_size": a.whole("moe-ffn-hidden-size", ffn),
        "shared_expert_intermediate_size": a.whole("moe-shared-expert-intermediate-size", 0, least=0),
        "shared_expert_gate": a.has("moe-shared-expert-gate"),
        "first_k_dense_replace": front,
        "moe_layer_freq": every,
        "router_bias": a.has("moe-router-enable-expert-bias"),
        "expert_bias": bias,
    }
    if factor < 0:
        raise ValueRangeError(f"--moe-expert-capacity-factor is {factor:g}, must be more than 0")
    a.rule("experts have equal loads")
    return mixture


def _groups(a: Arguments, experts: int) -> dict[str, Any]:
    """Groups of experts, and how many of them a token's experts may come from."""
    groups, chosen = a.whole("moe-router-num-groups"), a.whole("moe-router-group-topk")
    if groups is None:
        return {}
    if chosen is None or chosen > groups or experts % groups:
        raise QuestionError(
            f"--moe-router-num-groups {groups} must divide --num-experts {experts} and needs --moe-router-group-topk of at most {groups}"
        )
    return {"n_group": groups, "topk_group": chosen}


def _latent(a: Arguments) -> dict[str, Any]:
    """Ranks and widths of multi-head latent attention; none without it."""
    if not a.has("multi-latent-attention"):
        return {}
    return {
        "q_lora_rank": a.whole("q-lora-rank", 0, least=0),
        "kv_lora_rank": a.whole("kv-lora-rank", 32),
        "qk_nope_head_dim": a.whole("qk-head-dim", 128),
        "qk_rope_head_dim": a.whole("qk-pos-emb-head-dim", 64),
        "v_head_dim": a.whole("v-head-dim", 128),
    }
