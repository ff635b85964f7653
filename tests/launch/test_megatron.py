"""Megatron-LM launch arguments become options: mapped, ignored or refused, each for a stated reason."""

from __future__ import annotations

import json

import pytest

import ironlaw
import paths
from ironlaw.errors import InputError, QuestionError, UnknownNameError, UnsupportedError, ValueRangeError
from ironlaw.launch.megatron import tables
from ironlaw.launch.megatron.options import options_from_arguments
from ironlaw.launch.megatron.patterns import layers_by_stage, routed_layers
from ironlaw.launch.shell import MAX_CHARACTERS, read_command

DATA = paths.DATA / "megatron"
CASES = json.loads((DATA / "arguments.json").read_text(encoding="utf-8"))["cases"]
SMALL = {
    "--num-layers": 12,
    "--hidden-size": 512,
    "--num-attention-heads": 8,
    "--seq-length": 1024,
    "--max-position-embeddings": 1024,
    "--micro-batch-size": 4,
    "--global-batch-size": 32,
    "--bf16": True,
}
# options and, behind a dot, dimensions of the model that a set of arguments must become
EXPECTED = {
    "gpt/gpt3_7b_tp1_pp4_memory_speed": (8, {"pp": 4, "zero": 1, "overlap": "grad-reduce,param-gather,pp", "model.vocab_size": 131200}),
    "mixtral/mixtral_8x22b_tp2pp8ep8vpp1_release": (
        128,
        {"tp": 2, "sp": True, "pp": 8, "vpp": 1, "ep": 8, "model.num_experts": 8, "model.num_key_value_heads": 8, "model.gated_mlp": True},
    ),
    "mixtral/deepseekv3_proxy_flex_tp1pp4emp16etp1cp1_release": (
        64,
        {
            "layers_per_stage": [4, 4, 3, 3],
            "vpp": 2,
            "etp": 1,
            "model.kv_lora_rank": 512,
            "model.first_k_dense_replace": 3,
            "model.num_nextn_predict_layers": 1,
            "model.router_bias": True,
        },
    ),
    "gpt/gpt3_15b_8t_release_sm": (64, {"global_batch_size": 1152, "model.hidden_act": "relu2", "model.mlp_bias": False, "tp": 8}),
    "moe/gpt3_moe_mcore_te_ep8_resume_torch_dist_dist_muon": (8, {"optimizer": "muon", "ep": 8, "zero": 1}),
    "gpt/gpt3_mcore_te_tp1_pp4_vp1_uneven_pipeline": (8, {"layers_per_stage": [2, 4, 4, 2], "zero": 0}),
    "gpt/gpt3_mcore_te_tp1_pp4_vp2_account_for_embedding_loss_in_pipeline_split": (8, {"count_embedding": True, "vpp": 2}),
    "moe/gpt3_mcore_te_tp2_zp_z3_resume_torch_dist_te_8experts2parallel_top2router": (8, {"zero": 3, "ep": 2, "etp": 2}),
    "gpt/gpt3_mcore_te_tp1_pp1_resume_torch_dist_uniform_full_recompute_1node": (4, {"recompute": "full"}),
    "moe/gpt3_moe_mcore_te_tp2_pp2_ep4_etp1_fine_grained_offloading": (
        8,
        {"offload": "activations", "recompute": "selective:elementwise,mlp,up-projection", "layers_per_stage": [9, 6], "vpp": 4},
    ),
    "gpt/gpt3_mcore_tp4_pp1_resume_torch": (8, {"flash_attention": False, "precision": "fp16", "sp": False}),
    "gpt/gpt3_weekly_mcore_tp4_cp2_current_scaling_native_fp8_tp_sp_cp_tp_overlap": (8, {"precision": "fp8", "cp": 2}),
}
REFUSED = ["hybrid/hybrid_mr_mcore_te_tp1_pp1_cp1_dgx_a100_1N8G", "gpt/gpt_grpo_tp1tp2_pp1_dp8_583m_throughputtest"]


def options(gpus: int | None = 8, **more):
    return options_from_arguments({**SMALL, **{"--" + k.replace("_", "-"): v for k, v in more.items()}}, gpus=gpus, on="h100-sxm")


@pytest.mark.parametrize("name", EXPECTED)
def test_a_published_set_of_arguments_is_mapped_and_answered(name):
    gpus, expected = EXPECTED[name]
    made, rules = options_from_arguments(CASES[name]["arguments"], gpus=gpus, on="h100-sxm")
    for key, value in expected.items():
        assert (made["model"][key[6:]] if key.startswith("model.") else made[key]) == value, key
    assert made["framework"] == "megatron"
    assert len(rules) == len(set(rules))
    assert float(ironlaw.estimate(**made).groups[0].memory.allocated[0]) > 0


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_not_modelled_is_refused_with_its_reason(name):
    with pytest.raises(UnsupportedError, match=r"state-space|specification in Python|reinforcement learning"):
        options_from_arguments(CASES[name]["arguments"], gpus=8, on="h100-sxm")


def test_every_published_set_is_mapped_or_refused_here():
    assert set(CASES) == set(EXPECTED) | set(REFUSED)


def test_the_tables_are_disjoint_and_every_argument_has_a_reason():
    three = [set(tables.MAPPED), set(tables.IGNORED), set(tables.REFUSED)]
    assert sum(map(len, three)) == len(set().union(*three))
    for table in (tables.MAPPED, tables.IGNORED, tables.REFUSED):
        for name, reason in table.items():
            assert name.startswith("--") and name == name.lower() and "_" not in name
            assert reason.strip()


def test_an_unknown_argument_is_refused_with_the_nearest_names():
    with pytest.raises(UnsupportedError, match=r"--tensor-model-parallel-siz; nearest: .*--tensor-model-parallel-size"):
        options(**{"tensor-model-parallel-siz": 2})


def test_a_switch_that_is_off_is_an_argument_that_is_absent():
    assert options(swiglu=False, is_hybrid_model=False, num_experts=None)[0] == options()[0]


def test_an_absent_argument_has_megatrons_default():
    made, rules = options(tensor_model_parallel_size=2)
    assert (made["sp"], made["zero"], made["overlap"], made["recompute"]) == (False, 0, "none", "none")
    model = made["model"]
    assert model["vocab_size"] == 50432 and "no --vocab-size: 50,257, padded to a multiple of 128 * tp" in rules
    assert (model["intermediate_size"], model["norm"], model["position_embedding"]) == (2048, "layernorm", "learned")
    assert model["dropout"] and model["mlp_bias"] and model["tie_word_embeddings"] and model["num_key_value_heads"] == 8
    assert options(swiglu=True)[0]["model"]["intermediate_size"] == 1344  # two thirds of 4 h, in multiples of 64


def test_names_may_have_underscores_and_no_dashes():
    assert options_from_arguments({k[2:].replace("-", "_"): v for k, v in SMALL.items()}, gpus=8, on="h100-sxm")[0] == options()[0]


@pytest.mark.parametrize(
    ("more", "key", "value"),
    [
        ({"recompute_activations": True}, "recompute", "selective:attention"),
        ({"recompute_granularity": "full", "recompute_method": "block", "recompute_num_layers": 4}, "recompute", "every:3"),
        ({"recompute_granularity": "full", "recompute_method": "uniform", "recompute_num_layers": 4}, "recompute", "segments:4"),
        (
            {"recompute_granularity": "selective", "recompute_modules": ["core_attn", "layernorm"]},
            "recompute",
            "selective:attention,elementwise",
        ),
        ({"num_layers_per_virtual_pipeline_stage": 1, "pipeline_model_parallel_size": 4}, "vpp", 3),
        ({"num_virtual_stages_per_pipeline_rank": 2, "pipeline_model_parallel_size": 4}, "vpp", 2),
        (
            {"account_for_loss_in_pipeline_split": True, "num_layers": 11, "pipeline_model_parallel_size": 4},
            "layers_per_stage",
            [3, 3, 3, 2],
        ),
        ({"use_megatron_fsdp": True, "data_parallel_sharding_strategy": "optim_grads"}, "zero", 2),
        ({"use_distributed_optimizer": True, "num_distributed_optimizer_instances": 2}, "dp_replicate", 2),
        ({"fp8_format": "hybrid", "fp8_recipe": "blockwise"}, "precision", "fp8-block"),
        ({"fp4_format": "e2m1"}, "precision", "nvfp4"),
        ({"bf16": False}, "precision", "fp32"),
        ({"grad_reduce_in_bf16": True}, "gradient_dtype", "bf16"),
        ({"optimizer": "sgd"}, "optimizer", "momentum"),
        ({"optimizer": "sgd", "sgd_momentum": 0}, "optimizer", "sgd"),
        ({"attention_backend": "unfused"}, "flash_attention", False),
        ({"use_legacy_models": True}, "framework", "megatron-legacy"),
        ({"use_legacy_models": True, "recompute_granularity": "selective"}, "framework", "megatron"),  # the stack of 2021 has none
        ({"context_parallel_size": 2, "cp_comm_type": "a2a"}, "cp_method", "all-to-all"),
        ({"global_batch_size": None}, "global_batch_size", 32),
        ({"optimizer_cpu_offload": True}, "offload", "optimizer"),
        ({"optimizer_cpu_offload": True, "optimizer_offload_fraction": 0.25}, "offload_fraction", 0.25),
        ({"optimizer_cpu_offload": True, "overlap_cpu_optimizer_d2h_h2d": True}, "offload_overlap", True),
        ({"num_experts": 4, "moe_expert_capacity_factor": 1.5, "moe_pad_expert_input_to_capacity": True}, "capacity_factor", 1.5),
        ({"num_experts": 4, "tensor_model_parallel_size": 2}, "etp", 2),
    ],
)
def test_an_argument_becomes_its_option(more, key, value):
    assert options(**more)[0][key] == value


@pytest.mark.parametrize(
    ("more", "key", "value"),
    [
        ({"group_query_attention": True, "num_query_groups": 2}, "num_key_value_heads", 2),
        ({"num_query_groups": 2}, "num_key_value_heads", 8),
        ({"disable_bias_linear": True, "add_qkv_bias": True}, "query_key_value_bias", True),
        ({"window_size": "(127,0)", "window_attn_skip_freq": 4}, "sliding_window_layers", 9),
        ({"num_experts": 4, "moe_layer_freq": 2}, "moe_layer_freq", 2),
        ({"num_experts": 4, "moe_layer_freq": "([0]*3+[1]*9)"}, "first_k_dense_replace", 3),
        ({"multi_latent_attention": True, "kv_lora_rank": 64}, "head_dim", 192),
        ({"vocab_size": 1000, "make_vocab_size_divisible_by": 64}, "vocab_size", 1024),
    ],
)
def test_an_argument_becomes_its_dimension(more, key, value):
    assert options(**more)[0]["model"][key] == value


@pytest.mark.parametrize(
    ("more", "error", "words"),
    [
        ({"pipeline_model_parallel_size": 3}, QuestionError, "not a multiple"),
        ({"pipeline_model_parallel_size": 8}, QuestionError, "do not divide by pp 8"),
        ({"num_layers": "$LAYERS"}, ValueRangeError, "variable without a value"),
        ({"num_layers": 0}, ValueRangeError, "at least 1"),
        ({"num_layers": True}, ValueRangeError, "whole number"),
        ({"num_layers": 10**400}, ValueRangeError, "whole number"),
        ({"num_layers": 10**12}, ValueRangeError, "at most"),
        ({"hidden_size": "inf"}, ValueRangeError, "whole number"),
        ({"hidden_dropout": "nan"}, ValueRangeError, "number"),
        ({"optimizer": "adan"}, UnknownNameError, "adam"),
        ({"fp8_format": "e4m3", "fp8_recipe": "custom"}, UnsupportedError, "fp8-recipe custom"),
        ({"position_embedding_type": "relative"}, UnsupportedError, "relative"),
        ({"num_experts": 4, "moe_layer_freq": "__import__('os')"}, QuestionError, "moe-layer-freq"),
        ({"num_experts": 4, "moe_layer_freq": "[1]*9999999999"}, ValueRangeError, "more than"),
    ],
)
def test_a_set_with_which_megatron_would_not_start_is_refused(more, error, words):
    with pytest.raises(error, match=words):
        options(**more)


def test_without_gpus_the_batch_must_be_given():
    assert "gpus" not in options(None)[0]
    with pytest.raises(QuestionError, match="needs --gpus N"):
        options(None, global_batch_size=None)


@pytest.mark.parametrize("text", ["([0]*3+[1]*12)", "[0,0,0]+[1]*12", "([0]*1)*3+([1]*4)*3"])
def test_patterns_are_read_without_being_evaluated(text):
    assert routed_layers(text, 15, "--moe-layer-freq") == [False] * 3 + [True] * 12


@pytest.mark.parametrize(
    "text", ["", "E", "Et*99999999L", "E((t|)*9999)*9999L", "LtE", "Et|tL|", "Et(tL", "E" + "(" * 50 + "t" + ")" * 50 + "L"]
)
def test_a_layout_that_cannot_be_read_is_refused(text):
    with pytest.raises(QuestionError, match="pipeline-model-parallel-layout"):
        layers_by_stage(text, 2, 14)


def test_a_realistic_launch_script_is_read():
    found = read_command((DATA / "train_gpt.sh").read_text(encoding="utf-8"))
    assert found["--num-layers"] == "32" and found["--hidden-size"] == "4096" and found["--tensor-model-parallel-size"] == "2"
    assert found["--swiglu"] is True and found["--lr"] == "1e-4" and found["--rampup-batch-size"] == ["16", "8", "300000"]
    assert found["--data-path"] == "/data/two words" and found["--load"] == "a $HOME"
    assert not {"--nproc_per_node", "--nnodes", "--no-such-flag", "--hidden-dropout"} & set(found)
    made, rules = options_from_arguments(found, gpus=64, on="h100-sxm")
    assert (made["tp"], made["sp"], made["zero"], made["global_batch_size"]) == (2, True, 1, 1024)
    assert "a batch that grows is counted at its last size" in rules


def test_nothing_in_a_script_is_executed(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    found = read_command("touch made; X=$(touch made2)\npython pretrain_gpt.py --seed $(touch made3) --num-layers `touch made4` --bf16")
    assert found["--seed"] == "$(touch made3)" and found["--bf16"] is True
    assert not list(tmp_path.iterdir())


def test_a_command_line_alone_is_read():
    assert read_command("--num-layers=12 --bf16 --lr -1e-4 --window-size '(127, 0)'") == {
        "--num-layers": "12",
        "--bf16": True,
        "--lr": "-1e-4",
        "--window-size": "(127, 0)",
    }
    assert read_command("python a.py \\\r\n --bf16 \\\r\n --fp8-format hybrid 2>&1 | tee log --x") == {
        "--bf16": True,
        "--fp8-format": "hybrid",
    }
    assert read_command("") == {}
    assert read_command("python a.py --save 'open\n --bf16") == {"--save": "open\n --bf16"}


def test_scripts_that_grow_without_bound_are_refused():
    with pytest.raises(InputError, match="characters"):
        read_command("x" * (MAX_CHARACTERS + 1))
    with pytest.raises(InputError, match="grow"):
        read_command("A=aaaaaaaaaaaaaaaa\n" + "A=$A$A\n" * 60 + "python a.py --save $A")


GROUPED = (
    "--num-layers 2 --hidden-size 64 --num-attention-heads 4 --bf16 --seq-length 128 --max-position-embeddings 128 --micro-batch-size 1"
    " --vocab-size 1000 --num-experts 16 --moe-router-num-groups {groups} --moe-router-group-topk {limit}"
)


def test_groups_of_experts_are_read():
    options, _ = options_from_arguments(read_command(GROUPED.format(groups=8, limit=4)), gpus=1, on="h100-sxm")
    assert (options["model"]["n_group"], options["model"]["topk_group"]) == (8, 4)


@pytest.mark.parametrize(("groups", "limit"), [(3, 2), (4, 5)])
def test_groups_that_megatron_refuses(groups, limit):
    with pytest.raises(QuestionError, match="moe-router-num-groups"):
        options_from_arguments(read_command(GROUPED.format(groups=groups, limit=limit)), gpus=1, on="h100-sxm")


def test_a_flag_without_its_value_is_refused(ask, tmp_path):
    script = tmp_path / "train.sh"
    script.write_text("torchrun pretrain_gpt.py --num-layers 32 --hidden-size --num-attention-heads 32 --vocab-size 32000\n")
    status, _, err = ask("estimate", script, "--on", "h100-sxm", "--gpus", "8")
    assert status == 2 and "--hidden-size has no value" in err
