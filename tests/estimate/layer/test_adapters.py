"""Low-rank adapters: beside which operators, what they train, compute and keep, and how frozen weights are stored."""

from __future__ import annotations

import json

import numpy as np
import pytest

import ironlaw
from ironlaw.cli.main import main
from ironlaw.errors import QuestionError, UnknownNameError, UnsupportedError
from ironlaw.estimate.layer.adapters import visited
from ironlaw.estimate.layer.kinds import kinds
from ironlaw.estimate.layer.trained import layer_trained

ASK = {"on": "h100-sxm", "gpus": 1, "tp": 1, "pp": 1, "zero": 1, "micro_batch_size": 1, "global_batch_size": 1, "seq_len": 4096,
       "recompute": "none", "framework": "nemo", "lora_rank": 16}  # fmt: skip
H, F, KV, LAYERS = 4096, 14336, 1024, 32  # Llama 3 8B


def group(model="llama-3-8b", **more):
    (one,) = ironlaw.estimate(model, **{**ASK, **more}).groups
    return one


def trained(**more):
    job = group(**more).job
    return sum(kind.count * sum(layer_trained(job, kind)) for kind in kinds(job.model))


def number(value):
    return float(np.ravel(value)[0])


def size(name, **more):
    return float(group(**more).memory.tree[name].value[0])


@pytest.mark.parametrize(
    ("asked", "ends"),
    [
        ("qkv", H + H + 2 * KV),
        ("q,v", (H + H) + (H + KV)),
        ("q,k,v", 3 * H + H + 2 * KV),
        ("proj", H + H),
        ("attention", (H + H + 2 * KV) + (H + H)),
        ("fc1", H + 2 * F),
        ("gate,up", 2 * (H + F)),
        ("fc2", F + H),
        ("all", (H + H + 2 * KV) + (H + H) + (H + 2 * F) + (F + H)),
    ],
)
def test_adapter_parameters_are_rank_times_inputs_and_outputs(asked, ends):
    assert trained(lora_targets=asked) == 16 * LAYERS * ends


def test_separate_matrices_have_separate_adapters():
    assert trained(lora_targets="attention", framework="huggingface") == 16 * LAYERS * ((3 * H + H + 2 * KV) + (H + H))
    assert trained(lora_targets="qkv", framework="huggingface") == trained(lora_targets="qkv")  # asked for by name it is one


@pytest.mark.parametrize(("one", "other"), [
    ("linear_qkv,linear_proj", "attention"), ("q_proj,v_proj", "q,v"), ("all-linear", "all"), ("down_proj", "fc2"), ("o_proj", "proj"),
    ("gate_proj,up_proj", "gate,up"), ("mlp", "fc1,fc2"),
])  # fmt: skip
def test_spellings_of_other_frameworks_are_read(one, other):
    assert group(lora_targets=one).job.lora_targets == group(lora_targets=other).job.lora_targets


def test_flop_and_bytes_of_an_adapter_by_hand():
    """Forward 2 t r (k + n), backward twice that; scaled and added 10 bytes an output, backward 4 an output and 6 an input."""
    tree = group(lora_targets="proj").step.tree
    layer = next(t for t in tree.walk() if t.name == "layers")
    inputs = {t.name: t.inputs for t in layer.walk()}
    assert inputs["attention output adapter"]["flop"] == 2 * 4096 * H * 16
    assert inputs["attention output adapter up"]["flop"] == 2 * 4096 * 16 * H
    backward = [t for t in layer["backward"].parts if "adapter" in t.name and "flop" in t.inputs]
    assert sum(number(t.inputs["flop"]) for t in backward) == 2 * 2 * 4096 * 16 * (H + H)
    assert number(layer["forward"]["adapters scaled and added"].inputs["traffic"]) == 10 * 4096 * H
    assert number(layer["backward"]["adapters scaled and added"].inputs["traffic"]) == (4 + 6) * 4096 * H


def test_frozen_weights_pass_gradients_on_and_have_none():
    names = {t.name for t in group(lora_targets="qkv").step.tree.walk()}
    assert {"mlp in dgrad", "output dgrad", "query-key-value dgrad"} <= names
    wgrad = {n for n in names if n.endswith("wgrad")}
    assert wgrad == {"query-key-value adapter wgrad", "query-key-value adapter up wgrad"}
    assert "scatter-add" not in names


def test_only_inputs_that_a_gradient_needs_are_kept():
    """By hand, 2 bytes, a token and layer: both norms' inputs, queries, keys, values and output, a logsumexp a head, gate and up;
    then the input of each adapter, and its middle of the rank."""
    always = 2 * (2 * H + 2 * H + 2 * KV + 2 * F) + 4 * 32
    inputs = {"qkv": H, "proj": 0, "fc1": H, "fc2": F}  # the core's output is kept in any case
    for targets in ("qkv", "proj", "fc2", "qkv,proj,fc1,fc2"):
        names = targets.split(",")
        want = always + 2 * sum(inputs[n] for n in names) + 2 * 16 * len(names)
        assert size("saved layers", lora_targets=targets) == pytest.approx(4096 * LAYERS * want, rel=1e-9)
    whole = size("saved layers", lora_rank=None)
    assert whole == pytest.approx(4096 * LAYERS * (always + 2 * (H + H + F)), rel=1e-9)


def test_a_gradient_of_the_adapters_alone_is_reduced():
    one, full = (group(gpus=8, global_batch_size=8, zero=0, lora_rank=r) for r in (16, None))
    parts = [g.step.tree["exposed gradient reduction"].inputs["communication"] for g in (one, full)]
    assert float(parts[0][0]) < 0.05 * float(parts[1][0])


MIXTURE = {"model": "mixtral-8x7b", "gpus": 8, "ep": 8, "global_batch_size": 8}
MH, MF = 4096, 14336


def test_every_expert_has_an_adapter_of_its_own():
    none, some = (trained(**MIXTURE, lora_targets=t) for t in ("attention", "attention,experts"))
    assert some - none == 16 * 32 * 8 * ((MH + 2 * MF) + (MF + MH))
    job = group(**MIXTURE, lora_targets="experts").job
    (kind,) = kinds(job.model)
    assert visited(job, kind) == 16 * 2 * ((MH + 2 * MF) + (MF + MH))  # a token goes to two of eight
    assert trained(**MIXTURE, lora_targets="router") == 16 * 32 * (MH + 8)
    assert trained(**MIXTURE, lora_targets="all") == some


def test_experts_with_adapters_keep_their_rows():
    without, beside = (group(**MIXTURE, lora_targets=t).memory.tree for t in ("attention", "attention,experts"))
    assert beside["rows of experts"].value[0] > without["rows of experts"].value[0] == 0.0
    names = {t.name for t in group(**MIXTURE, lora_targets="experts").step.tree.walk()}
    assert {"experts in adapter", "experts out adapter up", "experts out adapter up wgrad"} <= names
    assert "experts in wgrad" not in names


def test_latent_attention_has_adapters_on_all_its_projections():
    """DeepSeek-V2-Lite: queries at once, 2048 to 16 (128 + 64); keys and values down to 512 + 64, up to 16 (128 + 128); out of 16 128."""
    ends = (2048 + 16 * 192) + (2048 + 576) + (512 + 16 * 256) + (16 * 128 + 2048)
    assert trained(model="deepseek-v2-lite", gpus=8, ep=8, global_batch_size=8, lora_targets="attention") == 16 * 27 * ends


V2_LITE = {"model": "deepseek-v2-lite", "gpus": 8, "ep": 8, "global_batch_size": 8}
V3 = {"model": "deepseek-v3", "gpus": 64, "ep": 64, "global_batch_size": 64}


@pytest.mark.parametrize(
    ("model", "asked", "ends"),
    [
        (V2_LITE, "mla_up_proj", 27 * (512 + 16 * 256)),  # queries have no latent there
        (V2_LITE, "kv_a_proj_with_mqa,kv_b_proj", 27 * ((2048 + 576) + (512 + 16 * 256))),
        (V2_LITE, "shared_experts", 26 * ((2048 + 2 * 2816) + (2816 + 2048))),  # 2 of 1,408, in all layers but the first
        (V3, "mla_up_proj", 61 * ((1536 + 128 * 192) + (512 + 128 * 256))),
        (V3, "q_a_proj,linear_q_up_proj", 61 * ((7168 + 1536) + (1536 + 128 * 192))),
        (V3, "shared_experts", 58 * ((7168 + 2 * 2048) + (2048 + 7168))),  # 3 dense layers have none
    ],
)
def test_parts_of_latent_attention_and_shared_experts_have_adapters_of_their_own(model, asked, ends):
    job = group(**model, lora_targets=asked).job
    assert sum(kind.count * sum(layer_trained(job, kind)) for kind in kinds(job.model) if kind.place != "end") == 16 * ends


@pytest.mark.parametrize(
    ("more", "error", "word"),
    [
        ({"lora_targets": "wq"}, UnknownNameError, "wq"),
        ({"lora_targets": "experts"}, QuestionError, "no experts"),
        ({"lora_targets": "shared_experts"}, UnsupportedError, "has no shared_experts"),
        ({"lora_targets": "mla_up_proj"}, UnsupportedError, "has no q_up"),
        ({"lora_targets": "qkv,q"}, QuestionError, "already contains q, k, v"),
        ({"lora_targets": "q", "model": "deepseek-v2-lite", "gpus": 8, "ep": 8, "global_batch_size": 8}, UnsupportedError, "use qkv"),
        ({"lora_targets": "gate", "model": "gpt-2-xl", "seq_len": 1024}, UnsupportedError, "use fc1"),
        ({"frozen_weights": "nf4", "lora_rank": None}, QuestionError, "lora_rank"),
        ({"frozen_weights": "nf4", "precision": "fp8"}, QuestionError, "bf16"),
        ({"frozen_weights": "fp8"}, QuestionError, "precision fp8"),
        ({"frozen_weights": "int4"}, UnknownNameError, "int4"),
    ],
)
def test_impossible_adapters_are_refused(more, error, word):
    with pytest.raises(error, match=word):
        group(**more)


def test_targets_without_a_rank_give_a_warning():
    assert "--lora-targets has no effect without --lora-rank: everything is trained" in group(lora_rank=None, lora_targets="all").warnings


def test_four_bits_a_weight_and_its_scales():
    """QLoRA: half a byte, a byte for 64 weights, four bytes for 256 of those; embedding, output layer and norms of two bytes."""
    layers = LAYERS * (2 * H * H + 2 * H * KV + 3 * H * F + 2 * H)
    tables = 2 * 128256 * H + H
    want = layers * (0.5 + 1 / 64 + 4 / (64 * 256)) + 2 * tables
    assert size("weights", frozen_weights="nf4") == pytest.approx(want, rel=1e-6)
    assert size("weights") == 2 * (layers + tables)


def test_four_bit_weights_are_unpacked_forward_and_backward():
    per_layer = 2 * H * H + 2 * H * KV + 3 * H * F
    tree = group(frozen_weights="nf4").step.tree
    moved = [number(t.inputs["traffic"]) for t in tree.walk() if t.name == "frozen weights unpacked" and "traffic" in t.inputs]
    assert moved[:2] == pytest.approx([per_layer * (2 + 0.5 + 1 / 64 + 4 / (64 * 256))] * 2)
    assert tree.value[0] > group().step.tree.value[0]


def test_frozen_fp8_weights_are_multiplied_without_a_cast():
    one, two = (group(precision="fp8", frozen_weights=w) for w in ("fp8", None))
    layers = two.memory.tree["weights"].value[0] - 2 * 2 * 128256 * H
    assert one.memory.tree["weights of layers"].value[0] == pytest.approx(0.5 * layers, rel=1e-3)
    names = [{t.name for t in g.memory.tree.walk()} for g in (one, two)]
    assert "low-precision copies of weights" in names[1] - names[0]
    assert "frozen weights transposed" in {t.name for t in one.step.tree.walk()}
    blackwell = group(precision="fp8", frozen_weights="fp8", on="b200-sxm").step.tree
    assert "frozen weights transposed" not in {t.name for t in blackwell.walk()}


def test_frozen_weights_are_gathered_in_their_stored_type():
    one, two = (group(gpus=8, zero=3, global_batch_size=8, framework="huggingface", frozen_weights=w).memory.tree for w in ("nf4", None))
    assert one["gather buffers"].value[0] <= two["gather buffers"].value[0]
    assert one["weights"].value[0] < 0.45 * two["weights"].value[0]


def test_the_page_and_the_json(capsys):
    asked = ["estimate", "llama-3-8b", "--on", "l4", "--gpus", "1", "--lora-rank", "16", "--lora-targets", "all", "--frozen-weights", "nf4"]
    asked += ["--seq-len", "1024", "--global-batch-size", "1", "--micro-batch-size", "1"]
    assert main(asked) == 0
    page = capsys.readouterr().out
    assert "fits" in page and "frozen weights unpacked" in page and "lora_targets all" in page
    main([*asked, "--json"])
    names = json.dumps(json.loads(capsys.readouterr().out)["step"])
    assert "adapters scaled and added" in names


@pytest.mark.parametrize("options", [{"lora_rank": 8}, {"optimizer": "adamw-bf16"}])
def test_weights_without_a_master_copy_are_not_stored_in_fp32(options):
    """Sharded stacks keep fp32 weights as masters; frozen weights and an optimizer of bf16 parameters have none."""
    held = [
        float(next(node for node in group.memory.tree.walk() if node.name == "weights").value.ravel()[0])
        for asked in ({}, options)
        for group in ironlaw.estimate("llama-2-7b", on="rtx-4090", gpus=1, global_batch_size=1, **asked).groups
    ]
    assert held[0] == pytest.approx(4 * 6738415616)
    assert held[1] == pytest.approx(2 * 6738415616)


def test_low_rank_adapters_of_7b_fit_into_24_gb():
    assert not ironlaw.estimate("llama-2-7b", on="rtx-4090", gpus=1, global_batch_size=1).fits[0]
    assert ironlaw.estimate("llama-2-7b", on="rtx-4090", gpus=1, global_batch_size=1, lora_rank=8).fits[0]
