"""Relations across architectures, and large questions that must answer completely."""

from __future__ import annotations

import re

import numpy as np
import pytest

import ironlaw
from made_recipes import recipe_with_wide_products

SHAPE = {
    "hidden_size": 2048, "num_hidden_layers": 16, "num_attention_heads": 16, "num_key_value_heads": 4, "intermediate_size": 5632,
    "vocab_size": 32000, "gated_mlp": True, "tie_word_embeddings": False,
}  # fmt: skip
ASK = {
    "on": "h100-sxm", "gpus": 16, "global_batch_size": 64, "seq_len": 4096, "tp": 2, "pp": 2, "vpp": 1, "zero": 1, "micro_batch_size": 1,
    "recompute": "none", "framework": "generic",
}  # fmt: skip


def seconds(model=SHAPE, **changes) -> float:
    return float(ironlaw.estimate(model, **{**ASK, **changes}).step_seconds[0])


def held(model=SHAPE, **changes) -> float:
    return float(ironlaw.estimate(model, **{**ASK, **changes}).device_bytes[0])


def test_one_expert_is_a_dense_model():
    one = {**SHAPE, "num_experts": 1, "num_experts_per_tok": 1, "moe_intermediate_size": SHAPE["intermediate_size"]}
    assert seconds(one) == seconds()
    assert held(one) == held()
    assert ironlaw.estimate(one, **ASK).mfu[0] == ironlaw.estimate(SHAPE, **ASK).mfu[0]


def test_axes_of_one_change_nothing():
    for axis in ("cp", "ep", "etp"):
        assert seconds(**{axis: 1}) == seconds()
    assert seconds(cp_method="all-to-all") == seconds(cp_method="ring")


def test_a_recipe_with_wide_products_is_bf16(tmp_path):
    """A user's recipe like fp8 whose products are bf16's is the wide path, bit for bit."""
    expected = seconds(precision="bf16"), held(precision="bf16")
    own = {"precision": "alike", "catalog": str(recipe_with_wide_products(tmp_path))}
    assert (seconds(**own), held(**own)) == expected
    assert seconds(precision="fp8") < expected[0]


def test_more_experts_cost_memory_and_hardly_time():
    def mixture(experts: int) -> dict:
        return {**SHAPE, "num_experts": experts, "num_experts_per_tok": 2, "moe_intermediate_size": 2816}

    assert held(mixture(16), ep=4) > held(mixture(8), ep=4)
    assert seconds(mixture(16), ep=4) == pytest.approx(seconds(mixture(8), ep=4), rel=0.1)


def test_a_capacity_factor_above_one_computes_padding():
    mixture = {**SHAPE, "num_experts": 8, "num_experts_per_tok": 2, "moe_intermediate_size": 2816}
    asked = {"ep": 4, "cuda_graphs": "full"}  # launched one by one, a model so small waits for its host and hides the padding
    assert seconds(mixture, **asked, capacity_factor=1.5) > seconds(mixture, **asked)
    assert seconds(mixture, **asked, expert_imbalance=1.5) > seconds(mixture, **asked)


def test_latent_attention_of_full_rank_heads_costs_at_least_its_core():
    """Same heads, queries and values: the attention core is the same, the projections differ."""
    latent = {
        **SHAPE, "num_key_value_heads": 16, "q_lora_rank": 768, "kv_lora_rank": 512, "qk_nope_head_dim": 96, "qk_rope_head_dim": 32,
        "v_head_dim": 128,
    }  # fmt: skip
    plain = {**SHAPE, "num_key_value_heads": 16}
    core = [ironlaw.estimate(m, **ASK).groups[0].step.tree["flash attention"].value[0] for m in (latent, plain)]
    assert core[0] == core[1]


def test_state_layers_grow_with_the_sequence_and_not_its_square():
    (short,) = ironlaw.estimate(
        "nemotron-h-8b", on="h100-sxm", gpus=8, tp=8, pp=1, seq_len=8192, micro_batch_size=1, recompute="none"
    ).groups
    (long,) = ironlaw.estimate(
        "nemotron-h-8b", on="h100-sxm", gpus=8, tp=8, pp=1, seq_len=65536, micro_batch_size=1, recompute="none"
    ).groups
    scans = [float(g.step.tree["mamba layers"]["state scan"].value[0]) for g in (short, long)]
    cores = [float(g.step.tree["attention layers"]["flash attention"].value[0]) for g in (short, long)]
    launches = 5 * short.cluster.gemm("bf16").launch.value
    assert (scans[1] - launches) / (scans[0] - launches) == pytest.approx(8.0)  # eight times the tokens, the same launches
    assert cores[1] / cores[0] > 30.0


def test_a_layer_of_one_block_keeps_the_input_of_one():
    """Its norm's and its product's, 2 bytes each: 8192 tokens of 4096 over tp 8, where a layer of two blocks keeps twice that."""
    (group,) = ironlaw.estimate(
        "nemotron-h-8b", on="h100-sxm", gpus=8, tp=8, pp=1, seq_len=8192, micro_batch_size=1, recompute="none"
    ).groups
    kept = [float(part.value[0]) for part in group.memory.tree["activations"].parts if part.name == "norms and residuals"]
    assert kept == [8192 * 4096 * (2 + 2) / 8] * len(kept)


def test_packed_documents_shorten_attention():
    times = [seconds(seq_len=16384, document_length=d) for d in (512, 4096, 16384)]
    assert times == sorted(times)
    assert times[-1] == seconds(seq_len=16384)


def test_offload_trades_memory_for_the_host_link():
    assert held(offload="optimizer") < held() and seconds(offload="optimizer") > seconds()
    assert held(offload="activations") < held() and seconds(offload="activations") >= seconds()


def test_a_chip_to_chip_link_hides_what_pcie_cannot():
    def away(on: str) -> float:
        answer = ironlaw.estimate(SHAPE, **{**ASK, "on": on, "gpus": 16}, offload="optimizer")
        return float(answer.groups[0].step.tree["gradients to the host"].value[0])

    assert away("h100-sxm") > 5.0 * away("gh200-96gb")


def test_adapters_train_little_and_hold_little():
    assert held(lora_rank=16) < held()
    assert seconds(lora_rank=16) < seconds()
    assert seconds(lora_rank=64) > seconds(lora_rank=16)


def test_adapters_leave_experts_frozen():
    routed = {**SHAPE, "num_experts": 8, "num_experts_per_tok": 2, "moe_intermediate_size": 5632}

    def products(**changes) -> set[str]:
        (group,) = ironlaw.estimate(routed, **{**ASK, "ep": 2}, **changes).groups
        return {term.name for term in group.step.tree.walk() if "expert" in term.name and term.name.endswith("wgrad")}

    assert products() == {"experts in wgrad", "experts out wgrad"}
    assert products(lora_rank=16) == set()


def test_frozen_layers_run_forward_only():
    times = [seconds(frozen_layers=n) for n in (0, 4, 8, 15)]
    sizes = [held(frozen_layers=n) for n in (0, 4, 8, 15)]
    assert times == sorted(times, reverse=True)
    assert sizes == sorted(sizes, reverse=True)
    assert times[0] == seconds()
    assert all(ironlaw.estimate(SHAPE, **ASK, frozen_layers=n).mfu[0] < 1.0 for n in (4, 15))


def test_gradient_dtype_is_held_and_reduced_in():
    assert held(gradient_dtype="bf16") < held(gradient_dtype="fp32")


def test_schedules_agree_without_a_pipeline():
    alone = {"pp": 1, "gpus": 8}
    schedules = ("1f1b", "gpipe", "zero-bubble", "dualpipe")
    assert len({held(**alone, schedule=schedule) for schedule in schedules}) == 1
    assert len({seconds(**alone, schedule=schedule) for schedule in schedules}) == 1


def test_zero_bubble_saves_at_most_the_weight_gradients_of_the_stages_ahead():
    (plain,) = ironlaw.estimate(SHAPE, **{**ASK, "schedule": "1f1b"}).groups
    (filled,) = ironlaw.estimate(SHAPE, **{**ASK, "schedule": "zero-bubble"}).groups
    bubble, left = plain.step.tree["pipeline bubble"].value[0], filled.step.tree["pipeline bubble"]
    assert left.value[0] < bubble
    assert left.value[0] >= bubble / 3.0  # weight gradients are at most a third of the passes, and fill both ends of the bubble


def test_context_by_all_to_all_pays_no_ring():
    (group,) = ironlaw.estimate(SHAPE, **{**ASK, "cp": 2, "gpus": 32, "cp_method": "all-to-all"}).groups
    assert group.step.tree["heads for tokens"].value[0] > 0.0


def test_evaluations_and_checkpoints_lengthen_the_run():
    plain = ironlaw.estimate(SHAPE, **ASK, tokens="10B").row()["run"]["days"]
    evaluated = ironlaw.estimate(SHAPE, **ASK, tokens="10B", evaluate_every=100, evaluation_tokens="10M").row()["run"]["days"]
    saved = ironlaw.estimate(SHAPE, **ASK, tokens="10B", checkpoint_every=100, checkpoint_bandwidth="10GB/s").row()["run"]["days"]
    assert plain < evaluated
    assert plain < saved


def test_a_mesh_without_a_switch_gives_small_groups_fewer_links():
    (two,) = ironlaw.estimate("llama-3-8b", on="mi300x", gpus=8, tp=2, pp=1, global_batch_size=64, micro_batch_size=1).groups
    (eight,) = ironlaw.estimate("llama-3-8b", on="mi300x", gpus=8, tp=8, pp=1, global_batch_size=64, micro_batch_size=1).groups
    rates = [float(np.ravel(g.step.tree["tensor parallel"]["all-gather"].inputs["inner_rate"])[0]) for g in (two, eight)]
    assert rates[1] == pytest.approx(7 * rates[0])


LARGE = {
    "a Mamba hybrid": ("nemotron-h-56b", {"on": "h100-sxm", "gpus": 512}),
    "a hybrid mixture": ("nemotron-3-nano-30b-a3b", {"on": "h100-sxm", "gpus": 64}),
    "linear attention": ("qwen-3-next-80b-a3b", {"on": "h200-sxm", "gpus": 128}),
    "DeepSeek-V3 on 2,048 H800": (
        "deepseek-v3",
        {
            "on": "h800-sxm", "gpus": 2048, "ep": 64, "precision": "fp8-block", "pp": 16, "schedule": "dualpipe",
            "global_batch_size": 15360, "seq_len": 4096,
        },
    ),
    "Qwen3-235B on 256 H100": ("qwen-3-235b-a22b", {"on": "h100-sxm", "gpus": 256}),
    "Mixtral 8x22B": ("mixtral-8x22b", {"on": "h100-sxm", "gpus": 128}),
    "gpt-oss-120b": ("gpt-oss-120b", {"on": "h100-sxm", "gpus": 64}),
    "a million tokens": ("llama-3.1-8b", {"on": "h100-sxm", "gpus": 256, "seq_len": 1048576, "cp": 32, "global_batch_size": 32}),
    "a TPU v5p slice": ("llama-3-70b", {"on": "tpu-v5p", "gpus": 512}),
    "512 MI300X": ("llama-3-70b", {"on": "mi300x", "gpus": 512}),
}  # fmt: skip


@pytest.mark.parametrize("name", LARGE)
def test_a_large_question_answers_completely(name):
    from ironlaw.report.explanation import explain

    model, options = LARGE[name]
    answer = ironlaw.estimate(model, tokens="1T", **options)
    assert answer.legal[0]
    row = answer.row(explain=True)
    assert row["step"]["seconds"] > 0
    assert row["run"]["days"] > 0
    assert not re.search(r"[:=] nan\b", explain(answer))
    assert all(v is not None for v in row["throughput"].values())
