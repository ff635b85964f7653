"""Every verb assumes the same batch, sequence length, framework and schedule of the same question."""

from __future__ import annotations

import json

import pytest

from ironlaw.estimate.bind.question import bind_question, framework_of, with_batch
from ironlaw.question import defaults
from ironlaw.question.asked import asked_of
from ironlaw.question.options import read_options
from ironlaw.search.answer import settings_of
from ironlaw.search.question import read_question
from verbs import MODULES, options

JOB = ("global_batch_size", "seq_len", "framework", "schedule")
VERBS = [verb for verb in MODULES if {"on", "gpus", "seq_len", "framework"} <= set(options(verb)) and verb != "diagnose"]
NEEDED = {
    "sites": ["--sites", "2", "--wan-bandwidth", "1GB/s"],
    "plan": ["--fix", "cp=1,zero=1,dp_replicate=1,vpp=1"],
    "solve": ["--solve-for", "time"],
}
IN_ROWS = {"sweep": {"global_batch_size", "seq_len"}}  # its table has a column for each


def assumed(ask, verb, *question):
    run = ["--tokens", "1T"] if "tokens" in options(verb) else []
    out = ask(verb, *question, *run, *NEEDED.get(verb, []), "--json")[1]
    found = json.loads(out)
    return {item["name"]: item["value"] for item in found["assumptions"] if item["name"] in JOB}, found


def test_the_verbs_that_take_the_job_are_many():
    assert {"estimate", "plan", "compare", "solve", "money", "goodput", "data", "sites", "lessons", "sweep", "roofline"} <= set(VERBS)


@pytest.mark.parametrize("gpus", [100, 768])
def test_every_verb_assumes_the_same_job(ask, gpus):
    question = ("llama-3-8b", "--on", "h100-sxm", "--gpus", str(gpus))
    first = assumed(ask, "estimate", *question)[0]
    assert set(first) == set(JOB)
    for verb in VERBS:
        found, _ = assumed(ask, verb, *question)
        expected = {name: first[name] for name in JOB if name not in IN_ROWS.get(verb, ())}
        if verb == "sites":  # every site has the batch of an estimate
            one_site, _ = assumed(ask, "estimate", *question[:-1], str(gpus // 2))
            expected["global_batch_size"] = 2 * one_site["global_batch_size"]
        assert found == expected, verb


@pytest.mark.parametrize("gpus", [1, 7, 72, 1000])
def test_the_plans_of_a_search_assume_what_an_estimate_assumes(ask, gpus):
    question = ("qwen-3-0.6b", "--on", "h100-sxm", "--gpus", str(gpus))
    estimate, _ = assumed(ask, "estimate", *question)
    plan, answer = assumed(ask, "plan", *question)
    assert plan == estimate
    for one in answer["plans"]:
        assert {item["name"]: item["value"] for item in one["assumptions"] if item["name"] in JOB} == estimate
        assert one["plan"]["framework"] == estimate["framework"]


AWKWARD = (1, 2, 3, 5, 7, 12, 30, 36, 72, 97, 100, 127, 128, 129, 480, 509, 511, 512, 513, 514, 516, 640, 720, 768, 1000, 1009, 1024, 1152)
AWKWARD += (1536, 1792, 2000, 2048, 2049, 2310, 3072, 4095, 4096, 4097, 5040, 6144, 7680, 8191, 8192, 9216, 9240, 9973, 9999, 10000)
MANY = sorted({*AWKWARD, *range(1, 10_001, 29)})
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
    for gpus in MANY:
        one = with_batch(bind_question(asked_of(read_options({**question, "gpus": gpus}))))
        row = one.asked.rows[0]
        (setting,) = settings_of(read_question({**question, "gpus": gpus}), ())
        assert (setting.batch, setting.seq_len, setting.framework) == (row.global_batch_size, row.seq_len, framework_of(one, row)), gpus
        assert setting.bound.asked.schedule == one.asked.schedule


def test_counts_of_one_search_share_the_batch_of_the_largest():
    settings = settings_of(read_question({"model": "llama-3-8b", "on": "h100-sxm", "gpus": "512,768"}), ())
    assert {setting.batch for setting in settings} == {defaults.batch(768.0, 8192.0)} == {384.0}
    notes = {item["name"]: item["value"] for item in settings[0].assumptions}
    assert notes["global_batch_size"] == "384 for every count: the default of 768 accelerators"


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
