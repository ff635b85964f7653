"""Build small instances of classes of transformers and compare what they hold and compute with the laws.

    python tools/transformers_classes.py        write tests/data/transformers_classes.csv; needs torch and transformers

Parameters are counted on the meta device. FLOPs are those of one forward pass under torch's FlopCounterMode, with attention as plain
products, so that it counts every score, masked or not. Saved bytes are those of one layer: what autograd keeps with three layers less
what it keeps with two, in bf16, with fused attention and without dropout and parameters.
"""

from __future__ import annotations

import csv
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from ironlaw.catalog.config_json.read import model_from_config
from ironlaw.catalog.model import Model
from ironlaw.estimate.answer.estimate import answer
from ironlaw.estimate.layer.counts import attending_layers, attention_width, total_parameters
from ironlaw.estimate.layer.kinds import kinds
from ironlaw.estimate.layer.sizes import Shapes
from ironlaw.estimate.memory.activations import layer_activations
from ironlaw.estimate.step.rates import flop_by_part
from ironlaw.law import flops
from ironlaw.terms import fold

OUT = Path(__file__).parent.parent / "tests" / "data" / "transformers_classes.csv"
BATCH, LENGTH, SOURCE = 2, 64, 96
COLUMNS = ("class", "parameters", "our_parameters", "flop", "our_flop", "saved", "our_saved", "why", "versions")

TEXT = {"hidden_size": 64, "intermediate_size": 192, "num_attention_heads": 4, "vocab_size": 512, "max_position_embeddings": 128}
GROUPED = TEXT | {"num_key_value_heads": 2, "head_dim": 16}
GPT = {"n_embd": 64, "n_head": 4, "vocab_size": 512, "n_positions": 128}
MOE = GROUPED | {"moe_intermediate_size": 48, "num_experts": 8, "num_experts_per_tok": 2, "decoder_sparse_step": 1}
LATENT = {"q_lora_rank": 24, "kv_lora_rank": 16, "qk_nope_head_dim": 12, "qk_rope_head_dim": 8, "v_head_dim": 12}
DEEPSEEK = TEXT | LATENT | {
    "moe_intermediate_size": 48, "n_routed_experts": 8, "num_experts_per_tok": 2, "n_shared_experts": 1, "n_group": 2, "topk_group": 1,
    "first_k_dense_replace": 1, "num_nextn_predict_layers": 0, "num_key_value_heads": 4,
}  # fmt: skip
STACKS = {
    "d_model": 64, "encoder_attention_heads": 4, "decoder_attention_heads": 4, "encoder_ffn_dim": 192, "decoder_ffn_dim": 192,
    "vocab_size": 512,
}  # fmt: skip
PIXELS = {
    "hidden_size": 64, "intermediate_size": 192, "num_attention_heads": 4, "image_size": 64, "patch_size": 16, "num_labels": 10,
}  # fmt: skip
GRID = (8, 8)  # patches of the image of each sequence
SEES = {"text_config": GROUPED, "image_token_id": 500, "vision_start_token_id": 501, "tie_word_embeddings": False}
EYES = {
    "depth": 2, "embed_dim": 32, "hidden_size": 64, "num_heads": 4, "mlp_ratio": 3, "patch_size": 14, "spatial_merge_size": 2,
    "temporal_patch_size": 2, "in_channels": 3,
}  # fmt: skip
DEEP_EYES = {
    "depth": 2, "hidden_size": 32, "intermediate_size": 96, "num_heads": 4, "out_hidden_size": 64, "patch_size": 16, "spatial_merge_size": 2,
    "temporal_patch_size": 2, "in_channels": 3, "num_position_embeddings": 64, "deepstack_visual_indexes": [0],
}  # fmt: skip
THREE_AXES = {"rope_parameters": {"rope_type": "default", "rope_theta": 10000.0, "mrope_section": [2, 3, 3]}}
LAYERS_BELOW = ("text_config.num_hidden_layers",)
JAMBA = GROUPED | {
    "num_experts": 4, "num_experts_per_tok": 2, "attn_layer_period": 2, "attn_layer_offset": 1, "expert_layer_period": 2,
    "expert_layer_offset": 1, "mamba_d_state": 16, "mamba_d_conv": 4, "mamba_expand": 2, "mamba_dt_rank": 8, "use_mamba_kernels": False,
}  # fmt: skip
MAMBA = {"hidden_size": 64, "state_size": 16, "conv_kernel": 4, "expand": 2, "vocab_size": 512, "time_step_rank": 8}


WIDE_HEADS = "fp32 copies in the norms of queries and keys"
GELU = "a GELU written as a chain of operators, each of which keeps its input"
LAYOUT = "copies of queries and keys between the fused projection and the rotation"


class Case(NamedTuple):
    """A class, its model_type, the fields of a small config, the fields that count layers, and further fields of that config."""

    name: str
    model_type: str
    fields: dict[str, Any]
    layers: tuple[str, ...] = ("num_hidden_layers",)
    saved: bool = True  # one layer is comparable: all layers are alike, and no layer computes again
    computed: bool = True  # the products are comparable
    why: str = ""  # what the class keeps that the laws leave out


CASES = (
    Case("LlamaForCausalLM", "llama", GROUPED),
    Case("MistralForCausalLM", "mistral", GROUPED | {"sliding_window": None}),
    Case("Qwen2ForCausalLM", "qwen2", GROUPED),
    Case("Qwen3ForCausalLM", "qwen3", GROUPED, why=WIDE_HEADS),
    Case("Qwen3MoeForCausalLM", "qwen3_moe", MOE, saved=False),
    Case("MixtralForCausalLM", "mixtral", GROUPED | {"num_local_experts": 8, "num_experts_per_tok": 2}, saved=False),
    Case("DeepseekV3ForCausalLM", "deepseek_v3", DEEPSEEK, saved=False),
    Case("GPT2LMHeadModel", "gpt2", GPT, ("n_layer",), why=GELU),
    Case("GPTNeoXForCausalLM", "gpt_neox", TEXT),
    Case("PhiForCausalLM", "phi", TEXT, why=GELU),
    Case("Gemma2ForCausalLM", "gemma2", GROUPED | {"query_pre_attn_scalar": 16}, saved=False),
    Case("Gemma3ForCausalLM", "gemma3_text", GROUPED | {"query_pre_attn_scalar": 16}, why=WIDE_HEADS + " and of products in norms"),
    Case("Olmo2ForCausalLM", "olmo2", TEXT, why=WIDE_HEADS + " and of products in norms"),
    Case("BertForPreTraining", "bert", TEXT),
    Case("RobertaForMaskedLM", "roberta", TEXT | {"pad_token_id": 1}),
    Case("ModernBertForMaskedLM", "modernbert", TEXT | {"global_attn_every_n_layers": 1, "pad_token_id": 0}, why=LAYOUT),
    Case("ViTForImageClassification", "vit", PIXELS),
    Case(
        "T5ForConditionalGeneration",
        "t5",
        {"d_model": 64, "d_ff": 192, "d_kv": 16, "num_heads": 4, "vocab_size": 512, "n_positions": SOURCE},
        ("num_layers", "num_decoder_layers"),
        saved=False,
    ),
    Case(
        "BartForConditionalGeneration",
        "bart",
        STACKS | {"max_position_embeddings": SOURCE},
        ("encoder_layers", "decoder_layers"),
        saved=False,
    ),
    Case(
        "WhisperForConditionalGeneration",
        "whisper",
        STACKS | {"num_mel_bins": 16, "max_source_positions": SOURCE, "max_target_positions": 128, "pad_token_id": 0},
        ("encoder_layers", "decoder_layers"),
        saved=False,
    ),
    Case(
        "Qwen2VLForConditionalGeneration",
        "qwen2_vl",
        SEES | {"vision_config": EYES, "text_config": GROUPED | THREE_AXES},
        LAYERS_BELOW,
        saved=False,
    ),
    Case("Qwen3VLForConditionalGeneration", "qwen3_vl", SEES | {"vision_config": DEEP_EYES}, LAYERS_BELOW, saved=False),
    Case("JambaForCausalLM", "jamba", JAMBA, saved=False, computed=False),
    Case("MambaForCausalLM", "mamba", MAMBA, saved=False, computed=False),
)


def config_of(case: Case, layers: int) -> dict[str, Any]:
    """The fields of the small config with so many layers."""
    fields = json.loads(json.dumps(case.fields))
    for name in case.layers:
        outer, _, inner = name.rpartition(".")
        (fields[outer] if outer else fields)[inner] = layers
    return {"model_type": case.model_type, **fields}


def ours(case: Case, layers: int) -> Model:
    """The Model that the config of the class describes, as the class itself writes the config."""
    stated = built_config(case, layers).to_dict()
    model, _ = model_from_config(json.loads(json.dumps(stated, default=str)), case.name, case.name)
    patches = float(GRID[0] * GRID[1])
    return model.replace(towers=tuple(t.replace(items=1.0, tokens=patches) if t.name == "vision" else t for t in model.towers))


def built_config(case: Case, layers: int, attention: str = "eager") -> Any:
    """The config of the class, with attention as plain products or as torch's fused kernel."""
    import transformers

    fields = {key: value for key, value in config_of(case, layers).items() if key != "model_type"}
    return transformers.AutoConfig.for_model(case.model_type, **fields, attn_implementation=attention)


def built(case: Case, layers: int, device: str, attention: str = "eager") -> Any:
    """An instance of the class with random weights, or without any on the meta device."""
    import torch
    import transformers

    with torch.device(device):
        config = built_config(case, layers, attention)
        config._experts_implementation = "eager"  # torch counts no FLOPs of grouped products
        return getattr(transformers, case.name)(config).eval()


def parameters(case: Case, layers: int = 2) -> tuple[int, float]:
    """The parameters of the class, each tensor once, and ours."""
    built_model = built(case, layers, "meta")
    tensors = {id(tensor): tensor.numel() for tensor in built_model.parameters()}
    # a number for each expert that the router adds: our laws count it, the class keeps it among its buffers
    tensors |= {id(tensor): tensor.numel() for name, tensor in built_model.named_buffers() if name.endswith("e_score_correction_bias")}
    return sum(tensors.values()), float(total_parameters(ours(case, layers)))


def inputs(case: Case) -> dict[str, Any]:
    """A batch of random tokens, pixels or frames."""
    import torch

    torch.manual_seed(0)

    def tokens(length: int) -> Any:
        return torch.randint(3, 500, (BATCH, length))

    if case.model_type == "vit":
        return {"pixel_values": torch.randn(BATCH, 3, 64, 64)}
    if case.model_type == "whisper":
        return {"input_features": torch.randn(BATCH, 16, 2 * SOURCE), "decoder_input_ids": tokens(LENGTH)}
    if "VL" in case.name:
        vision = case.fields["vision_config"]
        numbers = vision["in_channels"] * vision["temporal_patch_size"] * vision["patch_size"] ** 2
        text = torch.randint(3, 400, (BATCH, LENGTH))
        text[:, : GRID[0] * GRID[1] // 4] = case.fields["image_token_id"]
        grid = torch.tensor([[1, *GRID]] * BATCH)
        kinds_of_token = (text == case.fields["image_token_id"]).int()
        pixels = torch.randn(BATCH * GRID[0] * GRID[1], numbers)
        return {"input_ids": text, "pixel_values": pixels, "image_grid_thw": grid, "mm_token_type_ids": kinds_of_token}
    if "ConditionalGeneration" in case.name:
        return {"input_ids": tokens(SOURCE), "decoder_input_ids": tokens(LENGTH)}
    return {"input_ids": tokens(LENGTH)}


def counted_flop(case: Case, layers: int = 2) -> int:
    """FLOPs of one forward pass of the class."""
    import torch
    from torch.utils.flop_counter import FlopCounterMode

    model, batch = built(case, layers, "cpu"), inputs(case)
    with torch.no_grad(), FlopCounterMode(display=False) as counter:
        model(**batch)
    return int(counter.get_total_flops())


def our_group(case: Case, layers: int, flash: bool = False) -> Any:
    """An estimate of the model on one accelerator with the lengths of the batch."""
    model = ours(case, layers)
    length = float(model.max_position_embeddings if case.model_type == "vit" else LENGTH)
    asked = {
        "model": "gpt-2", "on": "h100-sxm", "gpus": 1, "tp": 1, "pp": 1, "zero": 0, "micro_batch_size": BATCH, "global_batch_size": BATCH,
        "seq_len": length, "framework": "huggingface", "recompute": "none", "flash_attention": False,
    }  # fmt: skip
    (group,) = answer(asked).groups
    return group, group.job.replace(model=model.replace(dropout=False), flash=flash)


def our_flop(case: Case, layers: int = 2) -> float:
    """FLOPs of the products of one forward pass by the laws, every score counted."""
    group, job = our_group(case, layers)
    parts = flop_by_part(job, group.plan)
    square = flops.attention_core(1.0, 1.0, group.plan.seq_len, attention_width(job.model), 1.0)  # what the mask hides, too
    per_token = parts["forward"].value + attending_layers(job.model) * square
    if "towers" in parts:
        per_token = per_token + parts["towers"].value / 3.0
    model = job.model
    once = 2.0 * model.vocab_size * model.hidden_size if model.head == "class" else 0.0  # one prediction for a sequence
    if model.family == "bert":  # the pooler and the head of the next sentence read one token of a sequence
        once = 2.0 * (model.hidden_size**2 + 2 * model.hidden_size)
    return float(per_token[0] * BATCH * group.plan.seq_len[0] + BATCH * once)


def saved_bytes(case: Case, layers: int) -> int:
    """Bytes of the tensors that autograd keeps of one forward pass in bf16, each storage once, without parameters."""
    import torch

    model, kept = built(case, layers, "cpu", "sdpa").to(torch.bfloat16), {}
    own = {tensor.untyped_storage().data_ptr() for tensor in model.parameters()}
    batch = {key: value.to(torch.bfloat16) if value.is_floating_point() else value for key, value in inputs(case).items()}

    def pack(tensor: Any) -> Any:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in own:
            kept[storage.data_ptr()] = storage.nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        result = model(**batch)
    del result
    return sum(kept.values())


def saved(case: Case) -> tuple[int, float]:
    """Bytes that one layer of the class keeps, and ours."""
    group, job = our_group(case, 3, flash=True)
    (kind,) = [kind for kind in kinds(job.model) if kind.place != "tower"]
    terms = layer_activations(job, group.plan, Shapes.of(job, group.plan), kind)
    return saved_bytes(case, 3) - saved_bytes(case, 2), float(fold(terms)[0])


def measure(case: Case) -> dict[str, Any]:
    """The row of one class."""
    import torch
    import transformers

    row: dict[str, Any] = dict.fromkeys(COLUMNS, "")
    row["class"], row["versions"] = case.name, f"transformers {transformers.__version__} and torch {torch.__version__.partition('+')[0]}"
    row["parameters"], row["our_parameters"] = parameters(case)
    if case.computed:
        row["flop"], row["our_flop"] = counted_flop(case), our_flop(case)
    if case.saved:
        row["saved"], row["our_saved"] = saved(case)
        row["why"] = case.why
    return row


def main(show: Callable[[str], Any] = sys.stdout.write) -> None:
    """Measure every class and write the table."""
    rows = [measure(case) for case in CASES]
    with OUT.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, COLUMNS, lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
    show(f"wrote {OUT.name}: {len(rows)} classes\n")


if __name__ == "__main__":
    main()
