"""Context parallelism as an axis of the search: the values tried, the plans counted, and the reason given for the choice."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import pytest

import ironlaw
from ironlaw.errors import ValueRangeError
from ironlaw.estimate.planner.space import context_ranks
from ironlaw.report.search import page
from ironlaw.search.answer import estimate_of, to_choices
from ironlaw.search.as_data import search_data
from ironlaw.search.sweep import fastest_plans

METHODS = ("ring", "all-to-all", "all-gather", "all-to-all+ring")
LONG = {"model": "llama-3-8b", "on": "h100-sxm", "gpus": 64, "global_batch_size": 16, "seq_len": 131072}
SPACE = """tp = [1, 2, 4]
pp = [1, 2]
cp = {cp}
cp_method = {methods}
dp_replicate = [1]
micro_batch_size = [1]
recompute = ["none", "full"]
zero = [1]
"""


@cache
def long() -> Any:
    return ironlaw.search(**LONG)


def of(tmp_path: Any, cp: str = "[1, 2, 4, 8]", methods: str = '["ring"]', **more: Any) -> Any:
    path = tmp_path / "space.toml"
    path.write_text(SPACE.format(cp=cp, methods=methods), encoding="utf-8")
    return ironlaw.search(**{**LONG, **more}, space=str(path))


@pytest.mark.parametrize(
    ("seq_len", "gpus", "most"),
    [(2048, 1024, 8), (8192, 1024, 8), (8192, 4, 4), (16384, 1024, 16), (131072, 1024, 128), (1048576, 512, 512)],
)
def test_more_ranks_are_tried_for_longer_sequences(seq_len, gpus, most):
    tried = context_ranks(seq_len, gpus)
    assert tried[-1] == most
    assert list(tried) == [2.0**i for i in range(len(tried))]


def test_a_million_tokens_have_plans():
    found = ironlaw.search("llama-3-8b", on="h100-sxm", gpus=512, seq_len=1048576, global_batch_size=16)
    best = found.first(1)[0]
    assert best.values["cp"] > 8
    answer = estimate_of([best], ())
    assert answer.step_seconds[0] == best.seconds
    assert answer.device_bytes[0] == best.device
    assert answer.fits[0]


def test_every_method_has_the_numbers_of_its_estimate():
    """The ten fastest plans of each method have the same bits as one call of ``estimate`` for each method."""
    seen = set()
    for setting in long().settings:
        choices = to_choices(setting, fastest_plans(setting.swept, 10))
        answer = estimate_of(choices, ())
        method = setting.bound.asked.cp_method
        assert {g.job.cp_method for g in answer.groups} == {method}
        np.testing.assert_array_equal(answer.step_seconds, [c.seconds for c in choices])
        np.testing.assert_array_equal(answer.device_bytes, [c.device for c in choices])
        seen.add(method)
    assert seen == set(METHODS)


def test_plans_of_one_rank_are_counted_once(tmp_path):
    alone = of(tmp_path, cp="[1]").space["legal"]
    ring, gather = (of(tmp_path, methods=f'["{m}"]').space["legal"] for m in ("ring", "all-gather"))
    both = of(tmp_path, methods='["ring", "all-gather"]')
    assert both.space["legal"] == ring + gather - alone
    assert both.first(1)[0].seconds == min(of(tmp_path, methods=f'["{m}"]').first(1)[0].seconds for m in ("ring", "all-gather"))


def test_by_length_searches_the_list_it_is_short_for(tmp_path):
    by_word = of(tmp_path, cp='"by length"', methods='"by length"').first(20)
    listed = of(tmp_path, cp="[1, 2, 4, 8, 16, 32, 64]", methods=str(list(METHODS)).replace("'", '"')).first(20)
    assert [(c.seconds, c.values) for c in by_word] == [(c.seconds, c.values) for c in listed]


def test_short_sequences_try_the_ring_alone():
    found = ironlaw.search("llama-3-8b", on="h100-sxm", gpus=16, global_batch_size=64, seq_len=8192)
    assert len(found.settings) == 1
    assert found.settings[0].space.of("cp") == (1.0, 2.0, 4.0, 8.0)


@pytest.mark.parametrize("held", [{"cp": 16}, {"fix": "cp=16"}])
def test_a_fixed_cp_is_in_every_plan(held):
    found = ironlaw.search(**LONG, **held)
    assert {c.values["cp"] for c in found.first(20)} == {16.0}


def test_forbidden_values_are_not_tried():
    assert max(c.values["cp"] for c in ironlaw.search(**LONG, forbid="cp>4").first(50)) <= 4.0


def test_a_word_that_an_axis_does_not_take_is_refused(tmp_path):
    with pytest.raises(ValueRangeError, match="only cp, cp_method can be"):
        path = tmp_path / "space.toml"
        path.write_text('tp = "by length"', encoding="utf-8")
        ironlaw.search(**LONG, space=str(path))


def test_the_answer_says_why_context_parallelism_is_used():
    data = search_data(long(), advice=False)
    told, best = data["context_parallel"], data["plans"][0]
    assert told["cp"] == best["plan"]["cp"] > 1
    assert told["method"] == best["plan"]["cp_method"]
    assert told["methods"][told["method"]] == best["step"]["seconds"]
    without = ironlaw.search(**LONG, fix="cp=1").first(1)
    assert told["other_cp"] == 1
    assert told["other_seconds"] == without[0].seconds
    assert 0.0 < told["likely_longer"] < told["other_seconds"] / best["step"]["seconds"] - 1.0
    assert f"cp {told['cp']} ({told['method']}): without it the fastest plan takes likely {told['likely_longer']:.1%} longer (" in page(
        data
    )
    # one line for each number of accelerators, for all methods together
    assert [row["gpus"] for row in data["sizes"]["by_gpus"]] == [64]


def test_the_answer_says_why_context_parallelism_is_not_used(tmp_path):
    question = {**LONG, "seq_len": 16384, "global_batch_size": 512, "fix": "pp=1"}
    data = search_data(ironlaw.search(**question), advice=False)
    told = data["context_parallel"]
    assert told["cp"] == 1
    others = {cp: ironlaw.search(**{**question, "fix": f"pp=1,cp={cp}"}).first(1)[0] for cp in (2, 4, 8)}
    assert told["other_cp"] == min(others, key=lambda cp: others[cp].score)
    assert told["other_seconds"] == others[told["other_cp"]].seconds >= data["plans"][0]["step"]["seconds"]
    assert f"cp 1: with cp {told['other_cp']} the fastest plan takes" in page(data)
    # the page says so where there is no other plan to compare with
    assert "none is in the search space" in page(search_data(ironlaw.search(**LONG, fix="cp=1"), advice=False))


def test_where_nothing_fits_without_it_the_smallest_plan_is_named():
    question = {"model": "llama-3-8b", "on": "h100-sxm", "gpus": 64, "global_batch_size": 1, "seq_len": 4194304, "forbid": "tp>2"}
    data = search_data(ironlaw.search(**question), advice=False)
    told = data["context_parallel"]
    assert told["cp"] > 1
    assert told["other_seconds"] is None
    assert told["leanest_bytes"] is None or told["leanest_bytes"] > told["capacity_bytes"]


def test_frameworks_of_a_list_are_compared_for_the_same_job():
    """Each has its own plans, which name it; the best is the best of each alone, and naming one framework gives its own answer."""
    question = {"model": "llama-3-8b", "on": "h100-sxm", "gpus": 16, "global_batch_size": 64, "seq_len": 4096}
    both = ironlaw.search(**question, framework="megatron,torchtitan-compile")
    alone = {name: ironlaw.search(**question, framework=name).first(1)[0] for name in ("megatron", "torchtitan-compile")}
    assert {s.framework: s.best for s in both.settings} == {name: choice.seconds for name, choice in alone.items()}
    assert both.first(1)[0].seconds == min(choice.seconds for choice in alone.values())
    plans = search_data(both, advice=False)["plans"]
    assert {plan["variant"]["framework"] for plan in plans} == set(alone)
    assert all(plan["variant"]["framework"] == plan["plan"]["framework"] for plan in plans)
    unnamed = ironlaw.search(**question).first(1)[0]
    assert (unnamed.seconds, unnamed.device) == (alone["megatron"].seconds, alone["megatron"].device)
