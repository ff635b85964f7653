"""Readers of the towers of a multimodal ``config.json``: layers that turn images or audio into tokens of the language model.

A row of ``READERS`` is the ``model_type`` of the tower's object. Each reader gets the tower's fields, those of the whole file, and the
width of the language model, and returns a Tower. The projector between tower and language model is part of the tower.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any

from ironlaw.catalog.config_json.fields import Fields
from ironlaw.catalog.config_json.shared import activation
from ironlaw.catalog.model import Tower, TowerProduct
from ironlaw.errors import InputError

NO_BIAS = {"query_key_value_bias": False, "attention_output_bias": False, "mlp_bias": False}
HUGGING_FACE = ("hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size")  # the names that most towers use
CONV = 3  # frames that one output of an audio tower's convolutions reads
FRAMES_PER_SECOND = 100.0  # of a log-mel spectrogram, before the convolution with stride 2


def _sizes(f: Fields, hidden: str, layers: str, heads: str, inner: str, /, **defaults: int) -> dict[str, Any]:
    """The sizes of a tower's layers, under the names that its file uses."""
    width = f.size(hidden, default=defaults.get("hidden"))
    count = f.size(heads, default=defaults.get("heads"))
    if width % count:
        raise InputError(f"{f.where}: field '{f.prefix}{hidden}' {width} is not a multiple of {count} heads")
    return {
        "hidden_size": width,
        "num_hidden_layers": f.size(layers, default=defaults.get("layers")),
        "num_attention_heads": count,
        "head_dim": _head_width(f, width // count),
        "intermediate_size": f.size(inner, default=defaults.get("inner")),
    }


def _head_width(f: Fields, width: int) -> int:
    """The width of a head, which a file may repeat."""
    for name in ("head_dim", "global_head_dim"):
        if f.size(name, default=width) != width:
            raise f.refuse(name, f"a tower whose heads are not hidden size over heads, {width}, wide")
    return width


def _patch(f: Fields, hidden: int, bias: bool, usual: int = 14, frames: int = 1, rows: float = 1.0) -> dict[str, Any]:
    """The side of a patch, and the product that turns its pixels into a token."""
    side = f.size("patch_size", default=usual)
    channels = f.size("in_channels", "in_chans", "num_channels", default=3)
    return {"patch_size": side, "products": [TowerProduct(inputs=channels * frames * side * side, outputs=hidden, rows=rows, bias=bias)]}


def _projector(merged: int, *widths: int, bias: bool = True) -> list[TowerProduct]:
    """The products of a projector through ``widths``, on one row for each ``merged`` tokens of the tower."""
    return [TowerProduct(inputs=k, outputs=n, rows=1.0 / merged, bias=bias) for k, n in pairwise(widths)]


def _vision(sizes: dict[str, Any], patch: dict[str, Any], projector: list[TowerProduct], **more: Any) -> Tower:
    return Tower(name="vision", **{**sizes, **patch, "products": (*patch["products"], *projector), **more})


def qwen2_vl(f: Fields, _: Fields, text: int) -> Tower:
    """Qwen2-VL: here ``hidden_size`` is the width of the language model and ``embed_dim`` that of the tower."""
    width, text = f.size("embed_dim", default=1280), f.size("hidden_size", default=text)
    f = f.with_values({"hidden_size": width, "intermediate_size": int(width * f.number("mlp_ratio"))})
    sizes = _sizes(f, "hidden_size", "depth", "num_heads", "intermediate_size", layers=32, heads=16)
    merged = f.size("spatial_merge_size", default=2) ** 2
    patch = _patch(f, width, bias=False, frames=f.size("temporal_patch_size", default=2))
    projector = _projector(merged, merged * width, merged * width, text)
    f.ignore("spatial_patch_size")  # patch_size counts
    return _vision(sizes, patch, projector, merged=merged, position_embedding="rope", other_parameters=2 * width)


def qwen2_5_vl(f: Fields, _: Fields, text: int) -> Tower:
    """Qwen2.5-VL: most layers attend inside windows of ``window_size`` pixels."""
    sizes = _sizes(f, "hidden_size", "depth", "num_heads", "intermediate_size", hidden=1280, layers=32, heads=16, inner=3420)
    width, merged = sizes["hidden_size"], f.size("spatial_merge_size", default=2) ** 2
    patch = _patch(f, width, bias=False, frames=f.size("temporal_patch_size", default=2))
    f.ignore("fullatt_block_indexes", "tokens_per_second")  # the second spaces the positions of frames
    listed = f.config.get("fullatt_block_indexes", [7, 15, 23, 31])
    if not isinstance(listed, list):
        raise f.wrong("fullatt_block_indexes", "a list of layers")
    side = f.size("window_size", default=112) // patch["patch_size"]
    projector = _projector(merged, merged * width, merged * width, f.size("out_hidden_size", default=text))
    return _vision(
        sizes, patch, projector, merged=merged, gated_mlp=True, norm="rmsnorm", hidden_act="silu", position_embedding="rope",
        other_parameters=width, sliding_window=side * side, sliding_window_layers=max(sizes["num_hidden_layers"] - len(listed), 0),
    )  # fmt: skip


def qwen3_vl(f: Fields, _: Fields, text: int) -> Tower:
    """Qwen3-VL and Qwen3.5: learned positions; further projectors feed the states of some layers to the language model."""
    sizes = _sizes(f, "hidden_size", "depth", "num_heads", "intermediate_size", hidden=1152, layers=27, heads=16, inner=4304)
    width, merged = sizes["hidden_size"], f.size("spatial_merge_size", default=2) ** 2
    patch = _patch(f, width, bias=True, usual=16, frames=f.size("temporal_patch_size", default=2))
    f.ignore("deepstack_visual_indexes")
    deep = len(f.config.get("deepstack_visual_indexes", [8, 16, 24]) or [])
    one = _projector(merged, merged * width, merged * width, f.size("out_hidden_size", default=text))
    positions = f.size("num_position_embeddings", default=2304) * width
    norms = 2 * width + deep * 2 * merged * width
    return _vision(
        sizes, patch, one * (1 + deep), merged=merged, hidden_act="gelu", position_embedding="rope", other_parameters=positions + norms
    )


def llama4(f: Fields, _: Fields, text: int) -> Tower:
    """Llama 4: an image is cut into tiles; a pixel shuffle and two products make a quarter of the tokens."""
    sizes = _sizes(f, *HUGGING_FACE)
    width, image = sizes["hidden_size"], f.size("image_size", default=448)
    patch = _patch(f, width, bias=False)
    merged = round(1.0 / f.number("pixel_shuffle_ratio") ** 2)
    inner, out = f.size("projector_input_dim"), f.size("projector_output_dim")
    projector = _projector(merged, sizes["intermediate_size"], inner, bias=False) + _projector(merged, out, out, bias=False)
    projector += _projector(merged, f.size("vision_output_dim"), text, bias=False)
    tokens = (image // patch["patch_size"]) ** 2 + 1
    return _vision(
        sizes, patch, projector, merged=merged, image_size=image, tiled=True, added_tokens=1, position_embedding="rope",
        other_parameters=(tokens + 1) * width + 4 * width,
    )  # fmt: skip


def siglip(f: Fields, outer: Fields, text: int) -> Tower:
    """SigLIP in Gemma 3: a mean over patches leaves ``mm_tokens_per_image`` tokens, which one product projects."""
    sizes = _sizes(f, *HUGGING_FACE, hidden=1152, layers=27, heads=16, inner=4304)
    width, image = sizes["hidden_size"], f.size("image_size", default=896)
    patch = _patch(f, width, bias=True)
    f.ignore("projection_dim", "vocab_size")  # of the SigLIP that the tower is taken from
    patches = (image // patch["patch_size"]) ** 2
    merged = max(patches // outer.size("mm_tokens_per_image", default=patches), 1)
    gemma = outer.text("model_type", default="") == "gemma3"
    projector = _projector(merged, width, text, bias=not gemma)
    others = patches * width + 2 * width + (width if gemma else 0)
    if f.flag("vision_use_head", True):  # attention of one query, and an MLP, which a language model does not read
        inner = sizes["intermediate_size"]
        others += width * (4 * width + 7) + 2 * width * inner + inner + width
    return _vision(sizes, patch, projector, merged=merged, image_size=image, fixed_image=True, other_parameters=others)


def clip(f: Fields, _: Fields, text: int) -> Tower:
    """CLIP in LLaVA: two products project every patch."""
    sizes = _sizes(f, *HUGGING_FACE)
    width, image = sizes["hidden_size"], f.size("image_size", default=336)
    patch = _patch(f, width, bias=False)
    tokens = (image // patch["patch_size"]) ** 2 + 1
    others = (tokens + 1) * width + 4 * width
    f.ignore("projection_dim", "vocab_size")  # of the CLIP that the tower is taken from
    projector = _projector(1, width, text, text)
    return _vision(sizes, patch, projector, image_size=image, fixed_image=True, added_tokens=1, other_parameters=others)


def pixtral(f: Fields, outer: Fields, text: int) -> Tower:
    """Pixtral: gated MLPs without biases; Mistral 3 merges patches before the projector."""
    sizes = _sizes(f, *HUGGING_FACE, hidden=1024, layers=24, heads=16, inner=4096)
    width, merged = sizes["hidden_size"], outer.size("spatial_merge_size", default=1) ** 2
    patch = _patch(f, width, bias=False, usual=16)
    bias = outer.flag("multimodal_projector_bias", merged == 1)
    projector = _projector(merged, merged * width, width, bias=False) if merged > 1 else []
    projector += _projector(merged, width, text, text, bias=bias)
    f.ignore("image_size")  # the largest side; positions are rotary
    others = width + (width if merged > 1 else 0)
    return _vision(
        sizes, patch, projector, merged=merged, gated_mlp=True, norm="rmsnorm", hidden_act=activation(f.text("hidden_act", default="silu")),
        position_embedding="rope", other_parameters=others, **NO_BIAS,
    )  # fmt: skip


def moonvit(f: Fields, _: Fields, text: int) -> Tower:
    """MoonViT in Kimi K2.5: learned positions beside rotary ones, and a merger of patches."""
    sizes = _sizes(f, "vt_hidden_size", "vt_num_hidden_layers", "vt_num_attention_heads", "vt_intermediate_size")
    width = sizes["hidden_size"]
    f.ignore(
        "merge_kernel_size", "init_pos_emb_time", "mm_hidden_size", "text_hidden_size", "video_attn_type"
    )  # positions in time are computed
    if f.text("mm_projector_type", default="patchmerger") != "patchmerger":
        raise f.refuse("mm_projector_type", "MoonViT with another projector")
    kernel = f.config.get("merge_kernel_size", [2, 2])
    if not isinstance(kernel, list) or len(kernel) != 2 or not all(isinstance(side, int) and side > 0 for side in kernel):
        raise f.wrong("merge_kernel_size", "a list of two whole numbers above 0")
    merged = kernel[0] * kernel[1]
    positions = f.size("init_pos_emb_height") * f.size("init_pos_emb_width") * width
    projector = _projector(merged, merged * width, merged * width, text)
    others = positions + 4 * width
    return _vision(sizes, _patch(f, width, bias=True), projector, merged=merged, position_embedding="rope", other_parameters=others)


def gemma4(f: Fields, _: Fields, text: int) -> Tower:
    """Gemma 4: gated MLPs, four norms a layer, norms of queries and keys, positions by row and column, a mean over patches."""
    sizes = _sizes(f, *HUGGING_FACE)
    width, side = sizes["hidden_size"], f.size("patch_size", default=16)
    f.ignore("default_output_length", "standardize")
    merged = f.size("pooling_kernel_size", default=3) ** 2
    patch = {"patch_size": side, "products": [TowerProduct(inputs=3 * side * side, outputs=width, bias=False)]}
    positions = 2 * f.size("position_embedding_size") * width
    return _vision(
        sizes, patch, _projector(merged, width, text, bias=False), merged=merged, gated_mlp=True, norm="rmsnorm", norms_per_layer=4,
        qk_norm=True, position_embedding="rope", other_parameters=positions, **NO_BIAS,
        num_key_value_heads=f.size("num_key_value_heads", default=sizes["num_attention_heads"]),
    )  # fmt: skip


def whisper_encoder(f: Fields, _: Fields, text: int) -> Tower:
    """The encoder of Whisper in Qwen2-Audio: pairs of its tokens are averaged, and one product projects them."""
    tower = audio_encoder(f, "audio")
    pair = TowerProduct(inputs=tower.hidden_size, outputs=text, rows=0.5)
    return tower.replace(merged=2, products=(*tower.products, pair))


def audio_encoder(f: Fields, name: str) -> Tower:
    """The encoder of Whisper: two convolutions of three frames, the second with stride 2, and fixed positions that are stored."""
    f = f.with_defaults({"num_hidden_layers": None})
    sizes = _sizes(f, "d_model", "encoder_layers", "encoder_attention_heads", "encoder_ffn_dim")
    width, longest = sizes["hidden_size"], f.size("max_source_positions", default=1500)
    products = (
        TowerProduct(inputs=CONV * f.size("num_mel_bins", default=80), outputs=width, rows=2.0),
        TowerProduct(inputs=CONV * width, outputs=width),
    )
    others = longest * width + 2 * width - sizes["num_hidden_layers"] * width  # keys have no bias
    return Tower(
        name=name, **sizes, products=products, other_parameters=others, longest=longest,
        tokens_per_second=FRAMES_PER_SECOND / 2.0,
    )  # fmt: skip


READERS: dict[str, Callable[[Fields, Fields, int], Tower]] = {
    "clip_vision_model": clip,
    "gemma4_vision": gemma4,
    "kimi_k25": moonvit,
    "llama4_vision_model": llama4,
    "pixtral": pixtral,
    "qwen2_5_vl": qwen2_5_vl,
    "qwen2_audio_encoder": whisper_encoder,
    "qwen2_vl": qwen2_vl,
    "qwen3_5": qwen3_vl,
    "qwen3_5_moe": qwen3_vl,
    "qwen3_vl": qwen3_vl,
    "qwen3_vl_moe": qwen3_vl,
    "siglip_vision_model": siglip,
}


def reader_of(model_type: str) -> Callable[[Fields, Fields, int], Tower] | None:
    """The reader of a type of tower; None for a type that is not read."""
    return READERS.get(model_type) or READERS.get(model_type.removesuffix("_vision"))
