"""Readers of encoders (BERT, RoBERTa, ModernBERT, ViT) and of encoder-decoders (T5, BART, Whisper).

A layer of a decoder with cross-attention counts as two layers of a Model: attention to the sequence without an MLP, and attention across
with the MLP. The encoder is the Model's tower.
"""

from __future__ import annotations

from ironlaw.catalog.config_json.fields import Fields
from ironlaw.catalog.config_json.llama import llama
from ironlaw.catalog.config_json.shared import Kwargs, activation, multi_head
from ironlaw.catalog.config_json.towers import audio_encoder
from ironlaw.catalog.model import LayerGroup, Tower, TowerProduct

BIASES = {"query_key_value_bias": True, "attention_output_bias": True, "mlp_bias": True}


def bert(f: Fields) -> Kwargs:
    """BERT with both heads of its pre-training: masked tokens, and whether one sentence follows the other."""
    width = f.size("hidden_size")
    pooler = width * width + width + 2 * width + 2
    return _post_norm(f, width) | {"other_parameters": f.size("type_vocab_size", default=2) * width + pooler}


def roberta(f: Fields) -> Kwargs:
    """RoBERTa: BERT with masked tokens alone."""
    width = f.size("hidden_size")
    return _post_norm(f, width) | {"other_parameters": f.size("type_vocab_size", default=1) * width}


def _post_norm(f: Fields, width: int) -> Kwargs:
    """What BERT and RoBERTa have in common: norms behind the additions, so that none is left for the end."""
    if f.flag("is_decoder", False) or f.flag("add_cross_attention", False):
        raise f.refuse("is_decoder", "BERT as a decoder")
    if f.text("position_embedding_type", default="absolute") != "absolute":
        raise f.refuse("position_embedding_type", "positions relative to each key")
    f.ignore(
        "pooler_fc_size", "pooler_num_attention_heads", "pooler_num_fc_layers", "pooler_size_per_head", "pooler_type", "directionality"
    )
    return (
        multi_head(f, width, f.size("num_attention_heads"))
        | BIASES
        | {
            "num_hidden_layers": f.size("num_hidden_layers"),
            "intermediate_size": f.size("intermediate_size"),
            "vocab_size": f.size("vocab_size"),
            "max_position_embeddings": f.size("max_position_embeddings", default=512),
            "tie_word_embeddings": f.flag("tie_word_embeddings", True),
            "gated_mlp": False,
            "hidden_act": activation(f.text("hidden_act", default="gelu")),
            "norm": "layernorm",
            "position_embedding": "learned",
            "embedding_norm": True,
            "final_norm": False,
            "output_bias": True,
            "head": "masked",
            "bidirectional": True,
            "dropout": f.any_dropout("hidden_dropout_prob", "attention_probs_dropout_prob", default=0.1),
        }
    )


def modernbert(f: Fields) -> Kwargs:
    """ModernBERT: rotary positions, gated MLPs, no biases; two layers in three see a window."""
    width, layers = f.size("hidden_size"), f.size("num_hidden_layers")
    f.ignore("local_rope_theta", "global_rope_theta", "classifier_pooling", "sparse_pred_ignore_index", "layer_types")
    for name in ("attention_bias", "mlp_bias", "norm_bias", "classifier_bias"):
        if f.flag(name, False):
            raise f.refuse(name, "ModernBERT with biases in its layers")
    every = f.size("global_attn_every_n_layers", default=3)
    return multi_head(f, width, f.size("num_attention_heads")) | {
        "num_hidden_layers": layers,
        "intermediate_size": f.size("intermediate_size"),
        "vocab_size": f.size("vocab_size"),
        "max_position_embeddings": f.size("max_position_embeddings", default=8192),
        "tie_word_embeddings": f.flag("tie_word_embeddings", True),
        "gated_mlp": True,
        "hidden_act": activation(f.text("hidden_activation", "hidden_act", default="gelu")),
        "norm": "layernorm-no-bias",
        "embedding_norm": True,
        "output_bias": f.flag("decoder_bias", True),
        "other_parameters": -2 * width,  # no norm before the first attention, and no bias before the output layer
        "head": "masked",
        "bidirectional": True,
        "sliding_window": f.size("local_attention", default=128),
        "sliding_window_layers": layers - -(-layers // every),  # layer 0 sees all, and each n-th after it
        "dropout": f.any_dropout("attention_dropout", "embedding_dropout", "mlp_dropout"),
    }


def vit(f: Fields) -> Kwargs:
    """A vision transformer with one class for an image; a sequence is the patches of the image and the class token."""
    width, side, image = f.size("hidden_size"), f.size("patch_size", default=16), f.size("image_size", default=224)
    f.ignore("encoder_stride", "pooler_output_size", "pooler_act")
    tokens = (image // side) ** 2 + 1
    labels = f.config.get("id2label")
    classes = len(labels) if isinstance(labels, dict) and labels else f.size("num_labels", default=1000)
    patch = TowerProduct(inputs=f.size("num_channels", default=3) * side * side, outputs=width, rows=(tokens - 1) / tokens)
    bias = f.flag("qkv_bias", True)
    return multi_head(f, width, f.size("num_attention_heads")) | {
        "num_hidden_layers": f.size("num_hidden_layers"),
        "intermediate_size": f.size("intermediate_size"),
        "vocab_size": classes,
        "max_position_embeddings": tokens,
        "tie_word_embeddings": False,
        "gated_mlp": False,
        "hidden_act": activation(f.text("hidden_act", default="gelu")),
        "norm": "layernorm",
        "position_embedding": "none",
        "query_key_value_bias": bias,
        "attention_output_bias": True,
        "mlp_bias": True,
        "output_bias": True,
        "head": "class",
        "bidirectional": True,
        "products": (patch,),
        "other_parameters": (tokens + 1) * width,
        "dropout": f.any_dropout("hidden_dropout_prob", "attention_probs_dropout_prob"),
    }


def t5(f: Fields) -> Kwargs:
    """T5, Flan-T5, mT5: no biases, and a table of biases by distance in the first layer of either stack."""
    width, heads, head_dim, inner = f.size("d_model"), f.size("num_heads"), f.size("d_kv"), f.size("d_ff")
    f.ignore(
        "relative_attention_max_distance", "n_positions", "dense_act_fn", "is_gated_act", "scale_decoder_outputs", "classifier_dropout"
    )
    layers = f.size("num_layers")
    name = f.text("feed_forward_proj", default="relu")
    gated, buckets = name.startswith("gated-"), f.size("relative_attention_num_buckets", default=32)
    table = buckets * heads
    longest = f.size("n_positions", default=512)
    act = activation(name.removeprefix("gated-"))
    encoder = Tower(
        name="encoder", hidden_size=width, num_hidden_layers=layers, num_attention_heads=heads, head_dim=head_dim, intermediate_size=inner,
        gated_mlp=gated, hidden_act=act, norm="rmsnorm", position_embedding="relative", other_parameters=table + width,
        query_key_value_bias=False, attention_output_bias=False, mlp_bias=False, tokens=float(longest), items=1.0, products=(),
    )  # fmt: skip
    return {
        **_decoder(f.size("num_decoder_layers", default=layers)),
        "hidden_size": width,
        "num_attention_heads": heads,
        "num_key_value_heads": heads,
        "head_dim": head_dim,
        "intermediate_size": inner,
        "vocab_size": f.size("vocab_size"),
        "max_position_embeddings": longest,
        "tie_word_embeddings": f.flag("tie_word_embeddings", True),
        "gated_mlp": gated,
        "hidden_act": act,
        "position_embedding": "relative",
        "other_parameters": table,
        "dropout": f.any_dropout("dropout_rate", default=0.1),
        "towers": (encoder,),
    }


def bart(f: Fields) -> Kwargs:
    """BART: learned positions and a norm of the embedding in either stack, and norms behind the additions."""
    width, longest = f.size("d_model"), f.size("max_position_embeddings", default=1024)
    f.ignore("classif_dropout", "num_hidden_layers", "add_bias_logits", "add_final_layer_norm", "normalize_before", "normalize_embedding")
    if f.config.get("add_final_layer_norm") or f.config.get("normalize_before"):
        raise f.refuse("normalize_before", "BART with norms before its blocks")
    f.ignore("static_position_embeddings", "gradient_checkpointing", "extra_pos_embeddings")
    encoder = Tower(
        name="encoder", **_stack(f, "encoder", width), other_parameters=(longest + 2) * width + 2 * width, tokens=float(longest), items=1.0
    )
    return _with_encoder(f, width, longest, encoder) | {
        "embedding_norm": True,
        "final_norm": False,
        "other_parameters": 2 * width,  # positions start at the third row of their table
    }


def whisper(f: Fields) -> Kwargs:
    """Whisper: an audio encoder, and a decoder of text with learned positions."""
    width = f.size("d_model")
    f.ignore("num_hidden_layers", "median_filter_width", "mask_time_length", "mask_time_min_masks", "mask_feature_length")
    f.ignore("mask_feature_min_masks", "classifier_proj_size", "use_weighted_layer_sum", "apply_spec_augment")
    encoder = audio_encoder(f, "encoder")
    encoder = encoder.replace(tokens=float(encoder.longest), items=1.0)
    decoder = _with_encoder(f, width, f.size("max_target_positions", default=448), encoder)
    return decoder | {"other_parameters": -decoder["num_hidden_layers"] * width}  # keys have no bias


def _stack(f: Fields, name: str, width: int) -> Kwargs:
    """The sizes of one stack of BART."""
    sizes = multi_head(f, width, f.size(f"{name}_attention_heads"))
    del sizes["num_key_value_heads"]
    return sizes | {"num_hidden_layers": f.size(f"{name}_layers"), "intermediate_size": f.size(f"{name}_ffn_dim")}


def _with_encoder(f: Fields, width: int, longest: int, encoder: Tower) -> Kwargs:
    """The decoder of BART and Whisper."""
    return (
        multi_head(f, width, f.size("decoder_attention_heads"))
        | BIASES
        | _decoder(f.size("decoder_layers"))
        | {
            "intermediate_size": f.size("decoder_ffn_dim"),
            "vocab_size": f.size("vocab_size"),
            "max_position_embeddings": longest,
            "tie_word_embeddings": f.flag("tie_word_embeddings", True),
            "gated_mlp": False,
            "hidden_act": activation(f.text("activation_function", default="gelu")),
            "norm": "layernorm",
            "position_embedding": "learned",
            "dropout": f.any_dropout("dropout", "attention_dropout", "activation_dropout", default=0.0),
            "towers": (encoder,),
        }
    )


def _decoder(layers: int) -> Kwargs:
    """Layers of a decoder: each attends to its sequence, then across, then has an MLP."""
    groups = (LayerGroup(count=layers, mlp="none"), LayerGroup(count=layers, mixer="cross"))
    return {"num_hidden_layers": 2 * layers, "layer_groups": groups}


def eurobert(f: Fields) -> Kwargs:
    """EuroBERT: layers of Llama that see all tokens, and an output layer of its own."""
    f.ignore("classifier_pooling")
    return llama(f) | {"bidirectional": True}


def nomic_bert(f: Fields) -> Kwargs:
    """Nomic BERT: BERT with rotary positions, gated MLPs and no biases in its layers."""
    width, heads = f.size("hidden_size"), f.size("num_attention_heads")
    f.ignore("head_dim")
    if f.size("head_dim", default=width // heads) != width // heads:
        raise f.refuse("head_dim", "Nomic BERT with heads of another width")
    no_biases = dict.fromkeys(BIASES, False)
    types = f.size("type_vocab_size", default=2) * width
    return _post_norm(f, width) | no_biases | {"position_embedding": "rope", "gated_mlp": True, "other_parameters": types}


def jina_v3(f: Fields) -> Kwargs:
    """Jina Embeddings v3 without its adapters: RoBERTa with rotary positions."""
    return roberta(f) | {"position_embedding": "rope"}
