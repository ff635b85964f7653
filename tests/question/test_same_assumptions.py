"""Every verb assumes the same batch, sequence length, framework and schedule of the same question."""

from __future__ import annotations

import json

import pytest

from ironlaw import estimate
from ironlaw.estimate.bind.question import bind_question, framework_of
from ironlaw.question.asked import asked_of
from ironlaw.question.read import read_options
from ironlaw.search.answer import settings_of
from ironlaw.search.question import read_question
from verbs import MODULES, options

JOB = ("global_batch_size", "seq_len", "framework", "schedule")
VERBS = [verb for verb in MODULES if {"on", "gpus", "seq_len", "framework"} <= set(options(verb)) and verb not in ("diagnose", "textbook")]
NEEDED = {
    "sites": ["--sites", "2", "--wan-bandwidth", "1GB/s"],
    "plan": ["--fix", "cp=1,zero=1,dp_replicate=1,vpp=1"],
    "solve": ["--solve-for", "time"],
}
IN_ROWS = {"sweep": {"global_batch_size", "seq_len"}}  # its table has a column for each


def assumed(ask, verb, *question, with_tokens=True):
    run = ["--tokens", "1T"] if with_tokens and "tokens" in options(verb) else []
    out = ask(verb, *question, *run, *NEEDED.get(verb, []), "--json")[1]
    found = json.loads(out)
    return {item["name"]: item["value"] for item in found["assumptions"] if item["name"] in JOB}, found


def test_the_verbs_that_take_the_job_are_many():
    assert {"estimate", "plan", "compare", "solve", "money", "goodput", "data", "sites", "optimize", "sweep", "roofline"} <= set(VERBS)


@pytest.mark.parametrize("gpus", [100, 768])
def test_every_verb_assumes_the_same_job(ask, gpus):
    question = ("llama-3-8b", "--on", "h100-sxm", "--gpus", str(gpus))
    firsts = {has_tokens: assumed(ask, "estimate", *question, with_tokens=has_tokens)[0] for has_tokens in (True, False)}
    assert all(set(first) == set(JOB) for first in firsts.values())
    for verb in VERBS:
        found, _ = assumed(ask, verb, *question)
        first = firsts["tokens" in options(verb)]  # the batch follows the tokens
        expected = {name: first[name] for name in JOB if name not in IN_ROWS.get(verb, ())}
        if verb == "sites":  # every site has the batch of an estimate
            one_site, _ = assumed(ask, "estimate", *question[:-1], str(gpus // 2))
            expected["global_batch_size"] = 2 * one_site["global_batch_size"]
        assert found == expected, verb


@pytest.mark.parametrize("gpus", [1, 7, 96, 1000])
def test_the_plans_of_a_search_assume_what_an_estimate_assumes(ask, gpus):
    question = ("qwen-3-0.6b", "--on", "h100-sxm", "--gpus", str(gpus))
    estimate, _ = assumed(ask, "estimate", *question)
    plan, answer = assumed(ask, "plan", *question)
    assert plan == estimate
    for one in answer["plans"]:
        assert {item["name"]: item["value"] for item in one["assumptions"] if item["name"] in JOB} == estimate
        assert one["plan"]["framework"] == estimate["framework"].partition(", chosen: ")[0]


COUNTS = (1, 7, 36, 97, 480, 512, 516, 768, 1000, 1009, 2310, 3072, 9999)
QUESTIONS = [
    {"model": "llama-3-8b", "on": "h100-sxm"},
    {"model": "gpt-2", "on": "a100-sxm-80gb"},  # its positions are fewer than the default sequence length
    {"model": "mixtral-8x7b", "on": "tpu-v5p"},  # an accelerator with a usual framework
    {"model": "llama-3-8b", "on": "h100-sxm", "tp": 1, "pp": 1},
    {"model": "llama-3-8b", "on": "h100-sxm", "tp": 1, "micro_batch_size": 4, "seq_len": 2048},
    {"model": "llama-3-8b", "on": "h100-sxm", "framework": "nemo", "global_batch_tokens": 2**23},
]


@pytest.mark.parametrize("question", QUESTIONS, ids=lambda q: ",".join(map(str, q.values())))
def test_estimate_and_plan_assume_the_same_for_every_count(question):
    for gpus in COUNTS:
        answer = estimate(**question, gpus=gpus)
        (setting,) = settings_of(read_question({**question, "gpus": gpus}), ())
        (group,) = answer.groups
        assert (setting.batch, setting.seq_len, setting.framework) == (
            group.plan.global_batch_size[0],
            group.plan.seq_len[0],
            group.job.framework.name,
        ), gpus
        assert setting.bound.asked.schedule == group.asked.schedule


def test_a_plan_that_is_given_whole_has_one_batch_in_every_verb():
    plan = {"tp": 8, "pp": 4, "vpp": 5, "zero": 1, "micro_batch_size": 2, "recompute": "none", "gpus": 768}
    question = {"model": "llama-3-70b", "on": "h100-sxm", **plan}
    (setting,) = settings_of(read_question(question), ())
    answer = estimate(**question)
    assert answer.legal[0] and answer.groups[0].plan.global_batch_size[0] == setting.batch
    assert setting.batch == 576.0  # 24 ranks of 2 sequences in groups of 4 micro-batches are 192; three times that is nearest to 512


def test_every_count_of_a_search_has_the_batch_of_an_estimate():
    question = {"model": "llama-3-8b", "on": "h100-sxm", "tokens": 15e12}
    settings = settings_of(read_question({**question, "gpus": "512,768,8192"}), ())
    batches = [estimate(**question, gpus=gpus).groups[0].plan.global_batch_size[0] for gpus in (512, 768, 8192)]
    assert [setting.batch for setting in settings] == batches
    assert batches[2] > batches[0]


def test_the_framework_follows_the_question_and_not_the_chosen_plan():
    for given, name in (
        ({"gpus": 8}, "megatron"),
        ({"gpus": 1}, "fsdp"),
        ({"gpus": 8, "tp": 1}, "megatron"),
        ({"gpus": 8, "tp": 1, "pp": 1}, "fsdp"),
        ({"gpus": 8, "on": "tpu-v5p"}, "maxtext"),
        ({"gpus": 1, "framework": "torchtitan"}, "torchtitan"),
    ):
        bound = bind_question(asked_of(read_options({"model": "llama-3-8b", "on": "h100-sxm", **given})))
        assert framework_of(bound, bound.asked.rows[0]) == name, given
