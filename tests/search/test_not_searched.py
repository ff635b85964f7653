"""What a search varies, lists as not searched, or may leave alone; and that no option which a page does not list beats its plan."""

from __future__ import annotations

import json

import pytest

import ironlaw
from ironlaw.cautions.record import sentences
from ironlaw.errors import IronlawError
from ironlaw.estimate.answer.estimate import answer
from ironlaw.estimate.answer.saved import read_answer
from ironlaw.estimate.planner.rows import columns_of
from ironlaw.estimate.planner.space import AXES, read_space
from ironlaw.estimate.planner.unsearched import PLACES, describe_unsearched
from ironlaw.estimate.what_if.change_options import change_options, results
from ironlaw.question.decisions import FASTEST, OF_STAGES
from ironlaw.question.options import OPTIONS
from ironlaw.question.read import read_options

DECISIONS = {name: option.search for name, option in OPTIONS.items()}
SLACK = 0.01  # of the step: what an option that the page does not list may gain


def is_searched(name: str) -> bool:
    return any(read_space(None).varies(axis) for axis in columns_of(name))


def test_every_option_is_searched_or_listed_or_has_a_reason():
    left = [name for name, one in DECISIONS.items() if not (one.settled or is_searched(name) or (one.words and one.where in PLACES))]
    assert left == []


def test_a_reason_and_words_exclude_each_other_and_every_place_is_used():
    assert not [name for name, one in DECISIONS.items() if one.settled and (one.words or one.where or one.partly)]
    assert not [name for name, one in DECISIONS.items() if one.partly and not is_searched(name)]
    assert {one.where for one in DECISIONS.values()} == set(PLACES)
    assert len({one.words for one in DECISIONS.values() if one.words}) == sum(bool(one.words) for one in DECISIONS.values())


def test_every_axis_of_a_space_is_an_option_with_a_row():
    assert set(AXES) <= {column for name in DECISIONS for column in columns_of(name)}


def listed(**question) -> set[str]:
    return set(ironlaw.estimate(**question).row(0)["not_searched"])


DENSE = {"model": "llama-3-8b", "on": "h100-sxm", "gpus": 8}
MIXTURE = {"model": "mixtral-8x7b", "on": "h100-sxm", "gpus": 64}


def test_a_plan_lists_what_its_stack_and_model_have():
    assert {"framework", "precision", "cuda_graphs", "gradient_dtype"} <= listed(**DENSE)
    assert {"etp", "expert_precision", "dispatch_precision"} <= listed(**MIXTURE) - listed(**DENSE)
    assert "attention_precision" not in listed(**{**DENSE, "on": "a100-sxm-80gb"})  # it has no fp8
    assert "attention_kernel" in listed(**DENSE, framework="fsdp")  # flash-2 on Hopper
    assert "weights_dtype" in listed(**DENSE, framework="torchtitan") - listed(**DENSE)
    assert "cuda_graphs" not in listed(**DENSE, framework="fsdp")
    assert {"balance", "packing"} <= listed(**DENSE, lengths="lognormal:median=800,sigma=1.1") - listed(**DENSE)
    assert "offload_overlap" in listed(**DENSE, offload="optimizer") - listed(**DENSE)


def test_what_the_question_gives_is_not_listed_and_a_given_plan_lists_nothing():
    assert "precision" not in listed(**DENSE, precision="fp8")
    assert "offload" not in listed(**DENSE, offload="none")
    plan = {"tp": 2, "pp": 1, "vpp": 1, "zero": 1, "micro_batch_size": 1, "recompute": "none", "global_batch_size": 64}
    assert listed(**DENSE, **plan) == set()


def test_a_space_of_ones_own_lists_the_axes_that_it_leaves_out(tmp_path):
    path = tmp_path / "space.toml"
    path.write_text("tp = [1, 2]\nprecision = ['bf16', 'fp8']\nrecompute = ['none', 'full']\n")
    found = listed(**DENSE, space=str(path))
    assert {"pp", "zero", "schedule", "micro_batch_size"} <= found
    assert not {"tp", "precision", "ep"} & found  # a dense model has no experts to place
    assert describe_unsearched(["pp", "gradient_dtype"]) == "pp, type of gradients"


def test_the_page_the_search_and_the_json_say_the_same(ask):
    words = ("llama-3-8b", "--on", "h100-sxm", "--gpus", 8, "--global-batch-size", 64)
    names = json.loads(ask("estimate", *words, "--json")[1])["not_searched"]
    assert f"Not searched: {describe_unsearched(names)}\n" in ask("estimate", *words)[1]
    of_search = json.loads(ask("plan", *words, "--json")[1])["question"]["not_searched"]
    assert set(names) <= set(of_search)  # which is for all plans that it lists
    assert f"Not searched: {describe_unsearched(of_search)}\n" in ask("plan", *words)[1]


# --- what few people run


def seldom_lines(**question) -> list[str]:
    return [line for line in sentences(ironlaw.estimate(**question).row(0)["warnings"]) if "few people run" in line]


def test_what_few_people_run_is_named_where_it_was_chosen():
    """127 divides by itself alone: Llama 3 70B fits only where weights are sharded too, which few people do with Megatron."""
    question = {"model": "llama-3-70b", "on": "h100-sxm", "gpus": 127}
    (line,) = seldom_lines(**question)
    assert "zero 3 on megatron" in line
    assert seldom_lines(**question, zero=3) == []  # it was asked for
    assert seldom_lines(**{**question, "gpus": 128}) == []
    found = ironlaw.search(**question).to_dict()
    assert line in sentences(found["warnings"])


# --- held plans

CASES = [
    {"model": model, "on": on, "gpus": gpus, **more}
    for model, on, gpus, more in (
        ("llama-3-70b", "h100-sxm", 256, {"precision": "fp8"}),
        ("llama-3-70b", "h100-sxm", 512, {}),
        ("llama-3-70b", "a100-sxm-80gb", 512, {}),
        ("llama-3-70b", "b200-sxm", 256, {"precision": "fp8"}),
        ("llama-3-70b", "gb200", 288, {}),
        ("llama-3-70b", "h100-sxm", 64, {"seq_len": 131072}),
        ("llama-3-70b", "h100-sxm", 32, {}),
        ("llama-3-70b", "mi300x", 256, {}),
        ("llama-3-70b", "tpu-v5p", 256, {}),
        ("llama-3-70b", "h100-sxm", 128, {"framework": "deepspeed"}),
        ("llama-3-70b", "h100-sxm", 256, {"framework": "torchtitan-compile", "precision": "fp8"}),
        ("llama-3-8b", "h100-sxm", 64, {}),
        ("llama-3-8b", "h100-sxm", 8, {"seq_len": 131072}),
        ("llama-3-8b", "h100-sxm", 16, {"framework": "fsdp"}),
        ("llama-3-8b", "l40s", 16, {}),
        ("llama-3-8b", "b200-sxm", 1024, {"global_batch_size": 2048}),
        ("llama-3.1-405b", "h100-sxm", 4096, {}),
        ("llama-3.1-405b", "h100-sxm", 256, {}),
        ("gpt-3-175b", "a100-sxm-80gb", 1024, {"global_batch_size": 1536}),
        ("gpt-3-175b", "h100-sxm", 512, {"precision": "fp8"}),
        ("gpt-3-175b", "v100-sxm-32gb", 512, {}),
        ("qwen-3-32b", "h100-sxm", 512, {"precision": "fp8"}),
        ("llama-2-13b", "a100-sxm-80gb", 128, {}),
        ("nemotron-4-340b", "h100-sxm", 1536, {"global_batch_size": 2304, "seq_len": 4096}),
        ("mixtral-8x7b", "h100-sxm", 256, {"precision": "fp8"}),
        ("qwen-3-235b-a22b", "h100-sxm", 512, {}),
        ("gpt-oss-120b", "h100-sxm", 64, {}),
        ("deepseek-v3", "h100-sxm", 256, {}),
        ("deepseek-v3", "h100-sxm", 1024, {}),
        ("deepseek-v3", "h800-sxm", 2048, {"global_batch_size": 15360, "seq_len": 4096, "precision": "fp8-block"}),
    )
]
VALUES = {  # what else a person may try, by option; a number after +, - or x changes the plan's own
    "framework": (), "precision": ("fp8",), "expert_precision": ("fp8", "bf16"), "attention_precision": ("fp8", "fp8-forward"),
    "attention_kernel": ("flash-2", "flash-3"), "dispatch_precision": ("fp8", "fp8-forward"), "fp8_param_gather": (True,),
    "gradient_dtype": ("bf16", "fp32"), "weights_dtype": ("bf16", "fp32"), "optimizer": ("adamw-bf16-moments", "muon"),
    "cuda_graphs": ("partial", "full"), "etp": (2, 4), "capacity_factor": (1.0,), "expert_placement": ("balanced",),
    "offload": ("optimizer", "activations"), "offload_overlap": (True,), "offload_fraction": (0.5,), "offload_layers": (2,),
    "frozen_weights": ("nf4",), "balance": ("flops",), "packing": ("pack-best-fit",), "cp_by_length": (True,), "layers_per_stage": (),
    "cp_method": ("ring", "all-to-all", "all-gather", "all-to-all+ring"),
    "recompute": ("none", "selective", "full", "every:3", "every:4", "share:0.4", "share:0.9", "selective:linear", "selective:elementwise"),
    "tp": ("x2", "x0.5"), "sp": (True, False), "pp": ("x2", "x0.5"), "vpp": ("+1", "-1", "+2", 14, 15, 16, 20), "cp": ("x2", "x0.5"),
    "ep": ("x2", "x0.5"), "dp_replicate": ("x2", "x4", "x0.5"), "zero": (0, 1, 2, 3), "micro_batch_size": ("+1", "x2", "x3"),
    "overlap": ("none", "all", "grad-reduce,param-gather,pp,tp,ep"), "schedule": ("1f1b", "zero-bubble", "dualpipe", "gpipe"),
    "moe_dispatcher": ("alltoall", "deepep", "hybridep"), "count_embedding": (True,), "first_stage_layers": ("+1", "-1", "-2"),
    "last_stage_layers": ("+1", "-1", "-2", "-3"), "fp8_scaling": ("current", "delayed"), "bf16_layers_at_start": (0,),
    "bf16_layers_at_end": (0,), "microbatch_group": (2, 8, 16, 32), "deferred_wgrad": (2, 8), "fused_loss": (True,),
    "delay_wgrad_compute": (True,), "grouped_experts": (False,), "flash_attention": (False,), "cp_inner": (2, 4, 8), "cp_balance": (False,),
    "gpus_per_domain": (4, 8, 16, 32, 64, 72), "logits": ("whole", "chunked"), "optimizer_in_backward": (True,),
}  # fmt: skip
NOT_CHANGED = {"framework", "layers_per_stage"}  # of what every page lists: no one value is right for all plans


def test_every_option_that_may_change_a_plan_is_tried_on_held_plans():
    tried = {name for name, one in DECISIONS.items() if not one.settled or one in (FASTEST, OF_STAGES)}
    assert set(VALUES) == tried
    assert {name for name, values in VALUES.items() if not values} == NOT_CHANGED
    assert len(CASES) == 30


def changed(value, before):
    """A value of VALUES for a plan that has ``before``; None where it has none to change."""
    if not isinstance(value, str) or value[0] not in "+-x" or not value[1].isdigit():
        return value
    if before is None:
        return None
    return int(float(before) * float(value[1:])) if value[0] == "x" else int(float(before) + float(value))


def changes_of(saved):
    for name, values in VALUES.items():
        for value in values:
            new = changed(value, saved.held.get(name))
            if new is not None and name not in saved.given:
                yield name, new


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case['model']} on {case['gpus']} {case['on']}")
def test_no_option_that_the_page_does_not_list_beats_a_held_plan(case, tmp_path):
    """One option at a time, with the memory that the plan keeps free; whatever the stack or a rule refuses is no better plan.

    A plan whose values nobody measured is worse by the score, and the page names the fastest of them: an option must not beat that.
    """
    best = ironlaw.estimate(**case)
    data = best.row(0)
    path = tmp_path / "best.json"
    path.write_text(json.dumps(data))
    saved, room = read_answer(path), (1.0 - data["memory"]["margin"]) * data["memory"]["capacity_bytes"]
    assert data["memory"]["device"] <= room
    assert results(answer(saved.held))["seconds"] == pytest.approx(data["step"]["seconds"], rel=1e-12)
    beaten, faster = {}, data.get("faster_unmeasured")
    fastest = min(data["step"]["seconds"], faster["seconds"] if faster else data["step"]["seconds"])
    for name, value in changes_of(saved):
        if name in data["not_searched"]:
            continue
        try:
            options, _ = change_options(saved.held, saved.given, read_options({name: value}))
            if name == "count_embedding":
                options = {n: v for n, v in options.items() if n not in ("first_stage_layers", "last_stage_layers")}
            found = results(answer(options))
        except IronlawError:
            continue
        if found["seconds"] is not None and found["bytes"] <= room:
            beaten[name, value] = 1.0 - found["seconds"] / fastest
    assert len(beaten) > 5
    assert {change: gain for change, gain in beaten.items() if gain > SLACK} == {}
