"""The views of what a run costs and of what optimisations do: their numbers are those of the answer."""

from __future__ import annotations

import json
import re

import pytest

import ironlaw
from ironlaw.page import words
from ironlaw.page.figure import live
from ironlaw.page.views import view_of

HELD = {"tp": 2, "pp": 1, "zero": 1, "micro_batch_size": 1, "recompute": "none", "global_batch_size": 64}
RUN = {"model": "llama-3-8b", "on": "h100-sxm", "gpus": 16}
ASKED = {
    "money": lambda: ironlaw.money(**RUN, **HELD, tokens="1T", purchase_price=40000, reserved_price=2.5),
    "optimize": lambda: ironlaw.optimize(**RUN, **HELD),
}


@pytest.fixture(scope="module")
def answers():
    return {verb: json.loads(json.dumps(ask().to_dict())) for verb, ask in ASKED.items()}


def shown(view) -> str:
    return re.sub(r"<(?!figure)[^>]+>", " ", f"{view.verdict} {view.lead} {view.content}")


def test_each_way_to_pay_is_shown_and_the_least_is_the_verdict(answers):
    answer = answers["money"]
    view = view_of("money", answer)
    text = shown(view)
    whole = [row for row in answer["ways"] if not row["way"].startswith(" ")]
    least = min(whole, key=lambda row: row["usd"])
    assert str(words.large(least["usd"], "USD")) in view.verdict and least["way"] in view.verdict and len(whole) == 3
    for row in answer["ways"]:
        assert row["way"].strip() in text and str(words.large(row["usd"])) in text
    for row in answer["energy_and_carbon"]:
        assert str(words.energy_of(row["energy"] / 3.6e6)) in text and words.quantity(row["carbon"], "kg") in text
    for one in answer["terms"].values():
        assert one["name"] in text
    assert "no band" in text


def test_a_run_without_a_price_says_so(answers):
    unpriced = {**answers["money"], "ways": [{**answers["money"]["ways"][0], "usd": None}]}
    assert "no price is known" in view_of("money", unpriced).verdict


def test_every_technique_is_shown_and_the_best_is_the_verdict(answers):
    answer = answers["optimize"]
    view = view_of("optimize", answer, live)
    text = shown(view)
    for one in answer["techniques"]:
        assert one["technique"] in text and words.quantity(one["seconds"], "s") in text
    helps = [one for one in answer["techniques"] if one["fits"] and not one["training"]]
    assert max(helps, key=lambda one: one["gain"])["technique"] in view.verdict.lower()
    for one in (*answer["roofs"], *answer["composed"]):
        assert (one.get("roof") or one["technique"]).replace("hbm", "HBM") in text
    assert 'data-figure="energy-precision"' in text


@pytest.mark.parametrize("verb", ASKED)
def test_an_answer_of_another_shape_has_the_generic_view(answers, verb):
    bare = {key: answers[verb][key] for key in ("title", "headline", "warnings", "asked")}
    assert view_of(verb, bare).verdict
