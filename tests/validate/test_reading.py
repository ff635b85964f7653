"""What a row states is read, and what is not understood sets the row apart: names, precisions, overlap, graphs, hybrids, stacks."""

from __future__ import annotations

import csv
from itertools import pairwise

import numpy as np
import pytest

import ironlaw
from ironlaw.catalog import load
from ironlaw.errors import IronlawError
from ironlaw.estimate.answer.table import options_of
from ironlaw.question.recipes import read_precision
from ironlaw.validate.fill import Apart, SkipError
from ironlaw.validate.predict import prepare, times
from ironlaw.validate.runs import RUNS
from ironlaw.validate.stack import Known, find_stack
from made_runs import GPT, mapped, ready

MIXTURE = {
    "model_name": "Qwen3_235B_a22B", "layers": "94", "hidden": "4096", "heads": "64", "kv_heads": "4", "ffn_hidden": "12288",
    "vocab": "151936", "moe_experts": "128", "moe_topk": "8", "expert_ffn_hidden": "1536", "gpu_type": "GB200", "gpu_mem_gb": "186",
    "gpus": "256",
    "tp": "1", "pp": "4", "vpp": "12", "cp": "1", "ep": "32", "micro_batch": "2", "global_batch_seqs": "4096", "seq_len": "4096",
    "framework": "Megatron-Bridge", "cuda_graphs": "n", "step_time_s": "20",
}  # fmt: skip


def seconds(**change):
    prepared, skipped = prepare([mapped(**{**MIXTURE, **change})])
    assert not skipped
    return float(times(prepared)[0])


# --- names ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["accelerators", "models"])
def test_a_name_with_another_in_brackets_resolves_as_the_name_does(kind):
    names = load.names(kind)
    for a, b in pairwise(names):
        cells = {"model_name": f"{a} ({b})"} if kind == "models" else {"gpu_type": f"{a} (any)"}
        named = options_of(cells, ())
        assert load.resolve(kind, named["model" if kind == "models" else "on"]) == a


@pytest.mark.parametrize(
    ("written", "memory", "name"),
    [
        ("TPU v6e (Trillium)", "", "tpu-v6e"),
        ("TPU v7x (Ironwood)", "", "tpu-v7x"),
        ("A100-80GB (Ampere)", "", "a100-sxm-80gb"),
        ("A100 (40GB)", "", "a100-sxm-40gb"),
        ("Google (TPU v5p)", "", "tpu-v5p"),
        ("A100", "40", "a100-sxm-40gb"),
        ("H100-80GB", "80", "h100-sxm"),
        ("RTX A6000", "48", "rtx-a6000"),
    ],
)
def test_accelerators_are_found_by_each_part_of_their_names(written, memory, name):
    assert load.resolve("accelerators", options_of({"gpu_type": written, "gpu_mem_gb": memory}, ())["on"]) == name


def test_a_tpu_slice_is_named_by_its_cores_up_to_v5p():
    chips = {
        name: mapped(gpu_type=name, gpu_mem_gb=None, gpus=count, tp="1", global_batch_seqs="1024").cells["gpus"]
        for name, count in (("TPU v3-256", "256"), ("TPU v3-256", "128"), ("v4-512", "512"), ("v5e-256", "256"))
    }
    assert chips == {"TPU v3-256": "128", "v4-512": "256", "v5e-256": "256"}
    assert mapped(gpu_type="TPU v3-256", gpu_mem_gb=None, gpus="256", global_batch_seqs="1024").asked[0]["on"] == "TPU v3"


def test_models_are_found_with_underscores_and_without_the_suffix_of_a_checkpoint():
    for written, name in (("Nemotron_3_Nano", "nemotron-3-nano-30b-a3b"), ("Qwen3-30B-A3B-Instruct-2507", "qwen-3-30b-a3b")):
        assert load.resolve("models", options_of({"model_name": written}, ())["model"]) == name


# --- hybrids -------------------------------------------------------------------------------------------------------------

HYBRID = {
    "model_name": "nemotron-h-56b", "gpu_type": "H100", "gpus": "64", "tp": "8", "pp": "1", "cp": "1", "micro_batch": "1",
    "seq_len": "8192", "global_batch_seqs": "192", "precision": "bf16", "recompute": "full", "framework": "megatron", "step_time_s": "26",
    "layers": None,
    "hidden": None, "heads": None, "vocab": None,
}  # fmt: skip
SIZES = {"layers": "118", "hidden": "8192", "heads": "64", "ffn_hidden": "32768", "vocab": "131072"}


def test_a_named_hybrid_with_its_sizes_is_the_catalogues_answer():
    by_name, with_sizes = (ready({**HYBRID, **sizes}) for sizes in ({}, SIZES))
    np.testing.assert_allclose(times(by_name), times(with_sizes), rtol=1e-12)


@pytest.mark.parametrize("change", [{"layers": "20"}, {"hidden": "4096"}, {"heads": "32"}])
def test_a_hybrid_of_other_sizes_is_skipped(change):
    with pytest.raises(SkipError, match="not the sizes of nemotron-h-56b"):
        mapped(**{**HYBRID, **SIZES, **change})


def test_a_mixture_that_is_only_named_is_set_apart_as_one():
    sizes = ("layers", "hidden", "heads", "kv_heads", "ffn_hidden", "vocab", "moe_experts", "moe_topk", "expert_ffn_hidden")
    named = mapped(**MIXTURE | dict.fromkeys(sizes))
    assert named.apart == (Apart.MIXTURE,)
    assert named.asked[0]["model"] == "Qwen3_235B_a22B"


def test_a_mixture_of_other_sizes_is_another_model():
    short = mapped(**{**MIXTURE, "layers": "24", "pp": "2", "vpp": "1", "ep": "32"})
    assert short.asked[0]["model"]["num_hidden_layers"] == "24"
    assert load.resolve("models", mapped(**MIXTURE).asked[0]["model"]) == "qwen-3-235b-a22b"


# --- precisions ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "precision", "experts", "scaling"),
    [
        ("bf16", "bf16", "", ""),
        ("BF16 mixed precision", "bf16", "", ""),
        ("bf16 with fp32 master weights", "bf16", "", ""),
        ("fp8 rowwise", "fp8-row", "", ""),
        ("float8 row-wise scaling", "fp8-row", "", ""),
        ("FP8 blockwise", "fp8-block", "", ""),
        ("fp8 (DeepSeek-V3 style)", "fp8-block", "", ""),
        ("fp8 tensorwise", "fp8", "", "current"),
        ("FP8-CS", "fp8", "", "current"),
        ("fp8 hybrid (TE), delayed scaling", "fp8", "", "delayed"),
        ("fp8_mx", "mxfp8", "", ""),
        ("fp4", "nvfp4", "", ""),
        ("bf16, mxfp8 experts", "bf16", "mxfp8", ""),
        ("fp8 experts only", "bf16", "fp8", ""),
        ("nvfp4 for the grouped gemms, bf16 elsewhere", "bf16", "nvfp4", ""),
    ],
)
def test_words_for_a_precision(words, precision, experts, scaling):
    assert read_precision(words) == (precision, experts, scaling, ())


def test_every_precision_of_the_table_is_read_or_sets_its_row_apart():
    with RUNS.open(encoding="utf-8") as file:
        words = {row[name] for row in csv.DictReader(file) for name in ("precision", "precision_filled")} - {""}
    for word in words:
        recipe = read_precision(word)
        assert recipe.precision in ironlaw.precision.PRECISIONS or word.startswith("int8"), word
        assert not recipe.unread or word.startswith("int8"), word


def test_a_word_that_is_not_understood_sets_the_row_apart_and_is_no_other_precision():
    run = mapped(precision="fp8 wavewise", gpu_type="H100")
    assert Apart.UNREAD in run.apart and any("wavewise" in rule for rule in run.rules)
    with pytest.raises(SkipError, match="unknown precision"):
        mapped(precision="posit8")
    with pytest.raises(IronlawError, match="wavewise"):
        options_of({**GPT, "precision": "fp8 wavewise"}, ())


def test_a_recipe_is_read_wherever_it_stands():
    for column in ("notes", "software", "recipe", "enrich_source"):
        assert mapped(precision="fp8", gpu_type="H100", **{column: "trained fp8 rowwise"}).asked[0]["precision"] == "fp8-row"
    assert mapped(precision="fp8", gpu_type="H100", notes="fp8_cs or fp8 rowwise").asked[0]["precision"] == "fp8"


def test_experts_have_a_precision_of_their_own():
    wide, narrow, experts = seconds(), seconds(precision="mxfp8"), seconds(expert_precision="mxfp8", precision="bf16")
    stated = seconds(precision="bf16, mxfp8 experts")
    assert experts == stated
    assert len({wide, narrow, experts}) == 3
    full = {"cuda_graphs": "y"}  # without the host, narrow products are faster, and experts are part of them
    assert seconds(precision="mxfp8", **full) < seconds(expert_precision="mxfp8", **full) < seconds(**full)


# --- overlap, groups, graphs ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "change",
    [
        {"enrich_source": "preset x; EP A2A 1F1B overlap on; cuda graph none"},
        {"notes": "overlap_moe_expert_parallel_comm=True"},
        {"comment": "all-to-all of experts beside another micro-batch"},
        {"software": "megatron --overlap-moe-expert-parallel-comm"},
        {"ep_comm_overlap": "y"},
        {"overlap": "grad-reduce,param-gather,pp,ep"},
    ],
)
def test_overlap_of_experts_is_read_from_any_column(change):
    asked = mapped(**{**MIXTURE, **change}).asked[0]
    assert "ep" in asked["overlap"]
    assert asked.get("delay_wgrad_compute", True) is True  # Megatron-Bridge sets both
    assert seconds(**change) < seconds()


def test_overlap_that_is_off_or_not_understood_is_not_on():
    assert "overlap" not in mapped(**{**MIXTURE, "notes": "overlap_moe_expert_parallel_comm=False"}).asked[0]
    assert Apart.UNREAD in mapped(**{**MIXTURE, "overlap": "domino"}).apart


def test_hybrid_sharding_is_zero_3_inside_a_group_of_whole_nodes():
    job = {"gpus": "64", "sharding": "hsdp", "global_batch_seqs": "256", "framework": "fms-fsdp"}
    stated = mapped(**job, dp_shard="16", dp="64").asked[0]
    assert (stated["zero"], stated["dp_shard"], stated["dp_replicate"]) == (3.0, 16.0, 4.0)
    held = mapped(**job, params_b="7").asked[0]
    assert (held["dp_shard"], held["dp_replicate"]) == (8.0, 8.0)  # 112 GB of states: one node of 8 x 80 GB
    assert mapped(**job, params_b="70").asked[0]["dp_shard"] == 32.0  # 1,120 GB at half of 80 GB each are 28: four nodes


def test_graphs_that_name_modules_take_their_launches_away():
    whole, none = seconds(cuda_graphs="y"), seconds()
    listed = "cuda graph transformer_engine ['attn', 'moe_router', 'moe_preprocess']"
    dense, scope = (seconds(cuda_graphs="partial", enrich_source=said) for said in ("", listed))
    assert whole <= scope <= dense <= none
    assert seconds(cuda_graphs="attn,mlp,mamba") == dense
    bounds = [seconds(cuda_graphs=s) for s in ("attn", "attn,moe_router", "attn,moe_router,moe_preprocess", "attn,moe")]
    assert bounds == sorted(bounds, reverse=True)


@pytest.mark.parametrize(
    "notes", ["--deterministic-mode", "deterministic mode on", "CI run, 4 micro-batches", "no fused wgrad accumulation"]
)
def test_runs_that_are_not_for_speed_are_set_apart(notes):
    assert Apart.DETERMINISTIC in mapped(notes=notes).apart
    assert Apart.DETERMINISTIC not in mapped(notes="deterministic=False; precision of CI unknown").apart


# --- stacks --------------------------------------------------------------------------------------------------------------


def test_an_unknown_stack_is_marked_and_a_stack_by_a_word_is_known_by_it():
    assert mapped(framework="home-made").apart == (Apart.UNKNOWN_STACK,)
    assert mapped(framework="home-made").stack is Known.GENERIC
    blank = mapped(framework=None)
    assert blank.stack is Known.GENERIC and not blank.apart and any("blank" in rule for rule in blank.rules)
    assert mapped(framework="our TorchTitan fork").stack is Known.WORD and not mapped(framework="our TorchTitan fork").apart
    for name in load.names("frameworks"):
        assert find_stack({"framework": name, "gpu_type": "TPU v5p"}) == (name, Known.NAME)


@pytest.mark.parametrize(
    ("name", "record"),
    [
        ("prime-rl (PyTorch FSDP2)", "prime-rl"),
        ("NeMo AutoModel", "automodel"),
        ("JAX", "xla-gpu"),
        ("MaxText (GPU)", "xla-gpu"),
        ("HF Trainer", "huggingface"),
        ("axolotl 0.9", "axolotl"),
        ("llm.c", "llm.c"),
        ("fms-fsdp", "fms-fsdp"),
    ],
)
def test_stacks_have_records(name, record):
    assert find_stack({"framework": name, "gpu_type": "H100"})[0] == record
    assert find_stack({"framework": "prime-rl (PyTorch FSDP2)", "trainer": "sft"})[0] == "prime-rl-sft"


def test_the_generic_record_is_that_of_a_question_without_a_framework():
    from ironlaw.validate.runs import map_row

    cells = {k: v for k, v in {**GPT, "framework": "torchtitan", "compile": "y"}.items() if v}
    own, generic = (map_row("a", 2, "ours", cells, (), which) for which in (False, True))
    assert (own.cells["framework"], generic.cells["framework"]) == ("torchtitan", "fsdp")
    assert own.asked[0]["framework"] == "torchtitan-compile" and generic.asked[0]["framework"] == "fsdp"
    assert map_row("a", 2, "ours", {**cells, "tp": "2"}, (), True).cells["framework"] == "megatron"


# --- what is not stated --------------------------------------------------------------------------------------------------


def test_a_blank_micro_batch_is_the_mean_of_the_good_ones():
    p = ready({"micro_batch": None})
    sizes = [float(np.ravel(b.plan.micro_batch_size)[i]) for b in p.batches for i in range(b.owner.size)]
    each = np.array([float(times(ready({"micro_batch": f"{size:g}"}))[0]) for size in sizes])
    assert len(sizes) > 1 and each.max() <= 1.1 * each.min()
    np.testing.assert_allclose(times(p)[0], np.exp(np.log(each).mean()), rtol=1e-9)
    for size in {1.0, 2.0, 4.0, 8.0, 16.0, 32.0} - set(sizes):
        other = ready({"micro_batch": f"{size:g}"})
        assert not other.fits[0] or float(times(other)[0]) > 1.1 * each.min()


def test_biases_of_experts_never_make_a_step_faster():
    assert seconds(expert_bias="y", layers="93", pp="1", vpp="1") >= seconds(layers="93", pp="1", vpp="1")
