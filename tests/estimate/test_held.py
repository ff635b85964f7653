"""Hold the plan of an answer and change one option: the same plan comes back, one change is one change, illegal plans are named."""

from __future__ import annotations

import json
import random

import pytest

from ironlaw.errors import IronlawError
from ironlaw.estimate.answer.estimate import answer
from ironlaw.estimate.answer.reproduce import as_option
from ironlaw.estimate.answer.saved import read_answer
from ironlaw.estimate.what_if.change_options import change_plan, differences, hold, likely_faster, plan_changes, results
from ironlaw.question.options import OPTIONS
from ironlaw.question.read import read_options
from ironlaw.report.held import held_lines
from ironlaw.report.terminal import Ink

VALUES = {  # a few values of every option of an estimate, as a person writes them
    "model": ["llama-3-8b", "mixtral-8x7b", "hidden_size=1024,num_hidden_layers=8,num_attention_heads=16,vocab_size=32000"],
    "on": ["h100-sxm", "a100-sxm-80gb", "b200-sxm", "tpu-v5p", "v100-sxm-32gb"],
    "gpus": ["8", "16", "64", "96"], "node": ["dgx-h100"], "fabric": ["roce-400"], "scale_up_size": ["4", "8"],
    "gpus_per_domain": ["4", "8"], "nic_bandwidth": ["25GB/s"], "power_cap": ["350W", "300"], "network_share": ["0.5"],
    "oversubscription": ["3:1"], "pod_size": ["16"], "rail_optimised": ["on"], "in_network_reduction": ["off"], "topology": ["4x4x4"],
    "framework": ["megatron", "fsdp", "torchtitan", "deepspeed"], "global_batch_size": ["64", "96", "256"],
    "global_batch_tokens": ["1048576", "2097152"], "seq_len": ["2048", "4096"], "micro_batch_size": ["1", "2"], "tp": ["1", "2", "4", "8"],
    "sp": ["on", "off"], "pp": ["1", "2", "4"], "vpp": ["1", "2"], "cp": ["1", "2"], "ep": ["1", "2", "8"], "etp": ["1"],
    "expert_imbalance": ["1.2"], "expert_load": ["zipf:0.2"], "expert_placement": ["balanced"], "load_spread": ["0.1"],
    "routing_noise": ["on", "off"], "moe_dispatcher": ["alltoall", "deepep"], "dispatch_precision": ["wide", "fp8"],
    "expert_precision": ["bf16", "fp8"],
    "capacity_factor": ["1.25"], "dp_replicate": ["1", "2"], "dp_shard": ["1", "2", "4"], "zero": ["0", "1", "2", "3"],
    "recompute": ["none", "full", "selective", "every:2", "share:0.5", "selective:attention,linear"],
    "precision": ["bf16", "fp8", "fp16", "fp32", "mxfp8"], "fp8_scaling": ["delayed"], "fp8_param_gather": ["on", "off"],
    "bf16_layers_at_start": ["1"], "bf16_layers_at_end": ["1"], "optimizer": ["adamw", "muon", "sgd", "galore"], "optimizer_rank": ["256"],
    "schedule": ["1f1b", "interleaved", "gpipe", "zero-bubble", "dualpipe"], "microbatch_group": ["4"], "deferred_wgrad": ["2"],
    "fused_loss": ["on"], "delay_wgrad_compute": ["on"], "grouped_experts": ["off"], "overlap": ["none", "all", "tp,grad-reduce"],
    "flash_attention": ["on", "off"], "attention_kernel": ["flash-2"], "cuda_graphs": ["partial", "attn,mlp"],
    "layers_per_stage": ["20,12", "8"],
    "first_stage_layers": ["4"], "last_stage_layers": ["6"], "mtp_stage": ["0"], "count_embedding": ["on"], "mtp_layers": ["1"],
    "cp_method": ["all-to-all", "all-gather", "all-to-all+ring"], "cp_inner": ["2"], "cp_balance": ["off"], "document_length": ["1024"],
    "lengths": ["fixed:2048", "lognormal:median=300,sigma=1"], "packing": ["pack", "none"], "balance": ["flops"], "cp_by_length": ["off"],
    "gradient_dtype": ["bf16", "fp32"], "offload": ["optimizer", "optimizer,activations", "parameters"], "offload_layers": ["4"],
    "weights_dtype": ["bf16", "fp32"],
    "offload_fraction": ["0.5"], "offload_overlap": ["on"],
    "lora_rank": ["16"], "lora_sets": ["4"], "lora_targets": ["attention", "q_proj,v_proj", "all"],
    "frozen_weights": ["nf4", "fp8", "gptq", "int8"], "frozen_layers": ["2"], "evaluate_every": ["100"], "evaluation_tokens": ["10M"],
    "checkpoint_every": ["500"], "checkpoint_bandwidth": ["100GB/s"], "mttf": ["50000h"], "restart_time": ["15min"],
    "tokens": ["1T", "300B"], "logits": ["whole"], "optimizer_in_backward": ["on"], "key_value_cache": ["on"],
    "images_per_sequence": ["2"], "image_size": ["448"], "audio_seconds": ["30"], "encoder_seq_len": ["512"], "frozen_tower": ["on"],
    "adapter": ["dora"], "objective": ["dpo", "orpo", "reward"], "teacher": ["llama-3-70b"], "precomputed_reference": ["on"],
    "attention_precision": ["fp8"],
    "margin": ["5%"], "space": ["published"], "price": ["2.5", "0"], "grid": ["france", "100"], "pue": ["1.1"],
}  # fmt: skip
FROM_FILES = {"correction", "calibration_version"}
ASKED = {"model": "llama-3-8b", "on": "h100-sxm", "gpus": 8}
PLAN = {"tp": 2, "pp": 1, "zero": 1, "micro_batch_size": 1}


def test_every_option_has_values_here():
    assert set(OPTIONS) - FROM_FILES == set(VALUES)


@pytest.mark.parametrize("name", VALUES)
def test_a_value_that_was_read_is_read_again_from_json(name):
    for value in VALUES[name]:
        read = OPTIONS[name].read(value, name)
        again = json.loads(json.dumps(as_option(name, read)))
        assert OPTIONS[name].read(again, name) == read, value


def random_question(draw):
    asked = {name: draw.choice(VALUES[name]) for name in ("model", "on", "gpus")}
    for name in draw.sample(sorted(set(VALUES) - set(asked)), draw.randint(0, 5)):
        asked[name] = draw.choice(VALUES[name])
    return asked


@pytest.mark.slow
def test_random_answers_are_asked_again_to_the_last_digit(tmp_path):
    draw, found = random.Random(16), 0
    path = tmp_path / "a.json"
    while found < 60:
        asked = random_question(draw)
        try:
            data = answer(read_options(asked)).row(0)
        except IronlawError:
            continue
        if data["step"]["seconds"] is None:
            continue
        found += 1
        path.write_text(json.dumps(data))
        again = answer(read_answer(path).held).row(0)
        if "framework" not in data["asked"]["given"]:  # it is stated now, and a band is narrower where the stack is
            for one in (data, again):
                one["step"].pop("band")
                (one["run"] or {}).pop("bands", None)
        for key in ("step", "memory", "throughput", "run"):
            assert again[key] == data[key], asked
        assert again["asked"]["plan"] == data["asked"]["plan"], asked


@pytest.fixture
def a(tmp_path):
    path = tmp_path / "a.json"
    path.write_text(json.dumps(answer(read_options({**ASKED, **PLAN, "recompute": "none"})).row(0)))
    return path


def test_recomputation_saves_the_activations_that_it_does_not_keep(a):
    """32 layers keep 16 bytes by token, width and tensor rank and more; with full recomputation one checkpoint each: 17.6 GiB, not 2.

    The layer that is computed again and the logits are not in memory together."""
    held = hold(a, {"recompute": "full"})
    moved = differences(results(held.before), results(held.after))
    assert moved["bytes"] / 2**30 == pytest.approx(-17.6, abs=0.1)
    assert not held.followed and held.changed == {"recompute": ("none", "full")}
    anew = answer(read_options({**ASKED, **PLAN, "recompute": "full"}))
    assert results(held.anew) == results(anew)


def test_random_flags_change_what_they_say_and_no_more(a):
    saved, draw = read_answer(a), random.Random(3)
    held = answer(saved.held).row(0)["asked"]["plan"]
    tried = 0
    for _ in range(150):
        name = draw.choice(sorted(set(VALUES) - {"model", "on"}))
        changes = read_options({name: draw.choice(VALUES[name])})
        options, followed = change_plan(saved, changes)
        try:
            data = answer(options).row(0)
        except IronlawError:
            continue
        tried += 1
        plan = data["asked"]["plan"]
        differ = {key for key in {*held, *plan} if held.get(key) != plan.get(key)}
        allowed = {name, *followed, "sp", "global_batch_size", *(["pp"] if name == "layers_per_stage" else [])}
        allowed |= {"cp_method"} if name == "framework" else set()  # a stack has its own methods of context parallelism
        assert differ <= allowed, (changes, differ)
        if data["step"]["seconds"] is not None:
            mesh = data["plan"]
            assert mesh["gpus"] == mesh["tp"] * mesh["pp"] * mesh["cp"] * mesh["dp"]
    assert tried > 100


def test_data_parallel_follows_the_count(a):
    for change, expected in (
        ({"tp": 4}, {"dp_shard": (4.0, 2.0)}),
        ({"gpus": 64}, {"dp_shard": (4.0, 32.0)}),
        ({"zero": 0}, {"dp_replicate": (1.0, 4.0), "dp_shard": (4.0, 1.0)}),
        ({"dp_replicate": 2}, {"dp_shard": (4.0, 2.0)}),
        ({"pp": 2, "dp_shard": 2}, {}),
        ({"micro_batch_size": 2}, {}),
        ({"tp": 3}, {}),
    ):
        assert hold(a, change).followed == expected if change != {"tp": 3} else change_plan(read_answer(a), read_options(change))[1] == {}


def test_the_batch_in_tokens_stays_where_it_was_asked_in_tokens(tmp_path):
    path = tmp_path / "a.json"
    path.write_text(json.dumps(answer(read_options({**ASKED, "global_batch_tokens": 2**20, "seq_len": 4096})).row(0)))
    plan = hold(path, {"seq_len": 2048}).after.row(0)["plan"]
    assert plan["global_batch_size"] * plan["seq_len"] == 2**20
    assert hold(path, {"global_batch_size": 64}).after.row(0)["plan"]["global_batch_size"] == 64


@pytest.mark.parametrize(
    ("more", "seq_len", "batch", "says"),
    [
        ({}, 4096, 1024, "512 sequences of 8,192 tokens, then 1,024 of 4,096: as many tokens"),  # 4 Mi tokens by default
        ({}, 6000, 700, "then 700 of 6,000: 100.1% of the tokens"),  # 699.05: the nearest multiple of 4 ranks
        ({"global_batch_size": 512}, 4096, 512, "then 512 of 4,096: 50.0% of the tokens"),
        ({"objective": "sft"}, 4096, 64, "64 sequences of 8,192 tokens, then 64 of 4,096: 50.0% of the tokens"),
    ],
)
def test_another_sequence_length_keeps_what_the_batch_counts(tmp_path, ask, more, seq_len, batch, says):
    path = tmp_path / "a.json"
    path.write_text(json.dumps(answer(read_options({**ASKED, **PLAN, **more})).row(0)))
    held = hold(path, {"seq_len": seq_len})
    assert held.after.row(0)["plan"]["global_batch_size"] == batch
    assert ("global_batch_size" in held.followed) == (batch in (1024, 700))
    assert says in ask("estimate", "--plan", path, "--seq-len", seq_len)[1]


def test_a_held_answer_can_be_held_again(a, tmp_path, ask):
    status, out, _ = ask("estimate", "--plan", a, "--recompute", "full", "--json")
    assert status == 0
    data = json.loads(out)
    assert data["asked"]["given"] == {**ASKED, **PLAN, "recompute": "full"}
    assert {item["origin"] for item in data["assumptions"]} <= {"given", "held", "chosen", "default", "override"}
    second = tmp_path / "b.json"
    second.write_text(out)
    back = hold(second, {"recompute": "none"})
    assert results(back.after) == results(hold(a, {}).before)


def test_the_page_says_what_was_held_and_both_differences(a, ask):
    status, out, _ = ask("estimate", "--plan", a, "--recompute", "full")
    assert status == 0
    lines = out.splitlines()
    at = lines.index("The plan of a.json, with recompute none to full")
    assert "-17.62 GiB" in next(line for line in lines[at:] if line.startswith("  plan held"))
    assert any(line.startswith("  plan chosen anew") for line in lines) == bool(plan_changes(hold(a, {"recompute": "full"})))


def test_the_gain_of_another_plan_is_said_as_measured_gains_were(tmp_path):
    """Smaller than predicted, of the same sign; none where the tool would choose the same plan."""
    path = tmp_path / "open.json"
    path.write_text(
        json.dumps(answer(read_options({"model": "llama-3-70b", "on": "h100-sxm", "gpus": 64, "global_batch_size": 128})).row(0))
    )
    held = hold(path, {"seq_len": 32768})
    before, after = (results(estimate)["seconds"] for estimate in (held.after, held.anew))
    assert plan_changes(held) and before != after
    predicted = 1.0 - after / before
    assert 0.0 < likely_faster(held) / predicted < 1.0
    (line,) = [line for line in held_lines(held, Ink(False)) if "would choose another plan" in line]
    assert f"likely {abs(likely_faster(held)):.1%} " in line and f"({abs(predicted):.1%} predicted)" in line
    assert likely_faster(hold(path, {})) is None


def test_an_answer_of_other_constants_is_told(a, ask):
    data = json.loads(a.read_text())
    data["step"]["seconds"] *= 1.01
    a.write_text(json.dumps(data))
    assert "has other numbers than this version" in ask("estimate", "--plan", a, "--zero", "3")[1]


def test_a_model_goes_before_the_held_one(a, ask):
    assert "with model llama-3-8b to qwen-3-0.6b" in ask("estimate", "qwen-3-0.6b", "--plan", a)[1]


@pytest.mark.parametrize(
    ("words", "status", "says"),
    [
        (("--tp", "3"), 2, "no such plan from a.json: tp 3 does not divide num_attention_heads 32"),
        (("--tp", "8", "--pp", "2"), 2, "8 gpus do not factor"),
        (("--pp", "3"), 2, "8 gpus do not factor"),
        (("--micro-batch-size", "1000"), 2, "micro_batch_size 1000 * dp 4 does not divide"),
        (("--vpp", "4", "--schedule", "gpipe"), 2, "one chunk"),
        (("--rows", "x.csv"), 2, "leave one out"),
        (("--tp", "two"), 2, "--tp"),
        (("--precision", "nvfp4"), 2, "h100-sxm has no such matrix rate"),
    ],
)
def test_flags_that_contradict_the_plan_are_one_line(a, ask, words, status, says):
    found, out, err = ask("estimate", "--plan", a, *words)
    assert (found, out, len(err.strip().splitlines())) == (status, "", 1)
    assert says in err


def test_a_plan_that_is_none_is_one_line(tmp_path, ask):
    for text, status in (("{}", 3), ("x", 3), ('{"plans": []}', 3)):
        path = tmp_path / "x.json"
        path.write_text(text)
        found, _, err = ask("estimate", "--plan", path)
        assert (found, len(err.strip().splitlines())) == (status, 1)
    assert ask("estimate", "--plan", tmp_path / "none.json")[0] == 3


def test_a_plan_of_a_search_is_held_by_its_rank(tmp_path, ask):
    path = tmp_path / "p.json"
    path.write_text(ask("plan", "llama-3-8b", "--on", "h100-sxm", "--gpus", "8", "--json")[1])
    plans = json.loads(path.read_text())["plans"]
    for rank, plan in enumerate(plans, 1):
        held = hold(f"{path}#{rank}", {})
        assert results(held.after)["seconds"] == plan["step"]["seconds"] == held.saved.seconds
        assert results(held.after)["bytes"] == plan["memory"]["device"]
    assert ask("estimate", "--plan", f"{path}#99")[0] == 3
