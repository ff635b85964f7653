"""Axes given by hand and axes found: the same seconds, or a line that says what the settings left to the stack cost."""

from __future__ import annotations

import json
import random

import pytest

import ironlaw
from ironlaw.cli.main import main
from ironlaw.estimate.answer.reproduce import asked_data
from ironlaw.estimate.what_if.left_open import LEAST, Settings, describe_settings, settings_data, settings_left_open

AXES = ("tp", "pp", "vpp", "cp", "ep", "etp", "zero", "micro_batch_size", "recompute", "sp", "dp_replicate")
DEVICES = ("h100-sxm", "a100-sxm-80gb", "b200-sxm", "gb200", "h200-sxm", "tpu-v5p")
SMALL = ("llama-3-8b", "llama-3-70b", "mixtral-8x7b", "qwen-3-30b-a3b", "qwen-2.5-7b", "llama-2-13b")
LARGE = ("llama-3.1-405b", "gpt-3-175b", "qwen-3-235b-a22b", "deepseek-v3")
GPT = {"model": "gpt-3-175b", "on": "h200-sxm", "gpus": 1024, "global_batch_size": 512, "seq_len": 2048}
GIVEN = {"tp": 2, "pp": 8, "vpp": 12, "cp": 2, "zero": 1, "micro_batch_size": 1, "recompute": "none"}
REFUSED = {"model": "llama-3.1-405b", "on": "h200-sxm", "gpus": 256, "global_batch_size": 256, "seq_len": 4096}
NO_LAYER = {"tp": 8, "pp": 16, "vpp": 8, "cp": 1, "zero": 1, "micro_batch_size": 1, "recompute": "none"}  # 126 layers, 128 chunks


def seconds(estimate):
    return float(estimate.step_seconds[0])


def flags(options):
    return [word for name, value in options.items() if name != "model" for word in (f"--{name.replace('_', '-')}", str(value))]


def random_question(seed):
    r = random.Random(seed)
    large = r.random() < 0.4
    return {
        "model": r.choice(LARGE if large else SMALL),
        "on": r.choice(DEVICES),
        "gpus": r.choice((256, 512, 1024) if large else (8, 16, 64, 128, 256)),
        "global_batch_size": r.choice((256, 512, 1024)),
        "seq_len": r.choice((2048, 4096, 8192)),
    }


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(20))
def test_axes_of_the_best_plan_given_by_hand_take_as_long_or_the_page_says_what_else_they_need(seed):
    question = random_question(seed)
    found = ironlaw.estimate(**question)
    group, at = found.place_of(0)
    plan = asked_data(group, at)["plan"]
    given = ironlaw.estimate(**question, **{axis: plan[axis] for axis in AXES if axis in plan})
    settings = settings_left_open(given)
    if settings is None:
        assert seconds(given) == pytest.approx(seconds(found), rel=LEAST)
        return
    assert settings.seconds == pytest.approx(seconds(found), rel=1e-9)
    if given.legal[0]:
        assert settings.longer == pytest.approx(seconds(given) / seconds(found) - 1.0, rel=1e-9)
        assert 0.0 < settings.likely_longer < settings.longer
    else:
        assert settings.longer is None and settings.likely_longer is None


def test_settings_that_are_named_are_the_settings_that_give_the_time():
    given = ironlaw.estimate(**GPT, **GIVEN)
    settings = settings_left_open(given)
    assert settings.options["overlap"] > frozenset({"grad-reduce", "param-gather", "pp"})  # what Megatron Core overlaps by itself
    assert seconds(ironlaw.estimate(**GPT, **GIVEN, **settings.options)) == pytest.approx(settings.seconds, rel=1e-12)


def test_an_axis_that_is_given_stays_as_it_is():
    every = {"overlap": "all", "first_stage_layers": 12, "last_stage_layers": 12, "schedule": "interleaved", "cp_method": "ring"}
    assert settings_left_open(ironlaw.estimate(**GPT, **GIVEN, **every)) is None
    kept = settings_left_open(ironlaw.estimate(**GPT, **GIVEN, overlap="none"))
    assert kept is None or "overlap" not in kept.options


def test_chunks_that_are_open_are_those_of_the_answer():
    open_chunks = {name: value for name, value in GIVEN.items() if name != "vpp"}
    chosen = ironlaw.estimate(**GPT, **open_chunks)
    vpp = int(chosen.place_of(0)[0].plan.vpp[0])
    assert settings_left_open(chosen) == settings_left_open(ironlaw.estimate(**GPT, **open_chunks, vpp=vpp))


@pytest.mark.parametrize(
    "more",
    [
        {},  # all axes open: a search chose the settings
        {**GIVEN, "gpus": 32},  # does not fit
        {"tp": 1, "pp": 1, "zero": 1, "micro_batch_size": 1, "recompute": "none", "gpus": 1, "model": "gpt-2"},  # nothing to overlap
    ],
)
def test_nothing_is_said_where_a_search_chose_or_nothing_can_be_gained(more):
    assert settings_left_open(ironlaw.estimate(**{**GPT, **more})) is None


def test_the_page_and_the_json_name_the_settings(capsys):
    command = ["estimate", "gpt-3-175b", *flags({**GPT, **GIVEN})]
    assert main(command) == 0
    settings = settings_left_open(ironlaw.estimate(**GPT, **GIVEN))
    assert describe_settings(settings) in capsys.readouterr().out.split("\n\n")[0]
    assert main([*command, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["left_open"] == settings_data(settings)


def test_a_refusal_names_the_settings_with_which_the_axes_run(capsys):
    assert main(["estimate", "llama-3.1-405b", *flags({**REFUSED, **NO_LAYER})]) == 2
    assert "a layer for every chunk" in (said := capsys.readouterr().err)
    settings = settings_left_open(ironlaw.estimate(**REFUSED, **NO_LAYER))
    assert isinstance(settings, Settings) and describe_settings(settings) in said
    answered = ironlaw.estimate(**REFUSED, **NO_LAYER, **settings.options)
    assert bool(answered.fits[0]) and seconds(answered) == pytest.approx(settings.seconds, rel=1e-12)
