"""--margin in every verb: what fits, the exit status, the words of a plan that leaves little memory free, wrong values."""

from __future__ import annotations

import json
from itertools import pairwise

import pytest

import ironlaw
import paths
from ironlaw.cautions.record import sentences
from ironlaw.estimate.memory.errors import memory_margin
from verbs import QUESTIONS, options

# 79.4 of 79.6 GiB on the first stage
HELD = ["--tp", "8", "--pp", "2", "--micro-batch-size", "1", "--recompute", "none", "--global-batch-size", "512"]
SPACE = ["--space", str(paths.DATA / "held.toml")]
TIGHT = ["llama-3-70b", "--on", "h100-sxm", "--gpus", "32", *HELD, *SPACE]


def test_a_plan_that_leaves_little_free_fits_with_a_warning(ask):
    status, out, _ = ask("estimate", *TIGHT)
    assert status == 0
    assert "% likely to fit" in out.splitlines()[1]
    row = json.loads(ask("estimate", *TIGHT, "--json")[1])
    memory = row["memory"]
    used = memory["device"] / memory["capacity_bytes"]
    assert 0.99 < used < 1.0
    assert memory["fits"] and not memory["keeps_margin"]
    assert memory["margin"] == memory_margin("megatron", "h100-sxm")
    assert memory["fits_probability"] < 0.8
    warned = [line for line in sentences(row["warnings"]) if "likely to fit" in line]
    assert len(warned) == 1 and "--margin 3.5%" in warned[0] and f"{used:.1%}" in warned[0]


@pytest.mark.parametrize(("margin", "status"), [("0", 0), ("0.3%", 0), ("0.8%", 1), ("5%", 1), ("0.05", 1)])
def test_a_margin_that_is_given_decides_the_exit_status(ask, margin, status):
    assert ask("estimate", *TIGHT, "--margin", margin)[0] == status
    found, out, _ = ask("estimate", *TIGHT, "--margin", margin, "--json")
    memory = json.loads(out)["memory"]
    assert found == status
    assert memory["fits"] == memory["keeps_margin"] == (status == 0)
    assert memory["margin"] == pytest.approx({"0": 0.0, "0.3%": 0.003, "0.8%": 0.008}.get(margin, 0.05))
    assert "likely to fit:" not in " ".join(sentences(json.loads(out)["warnings"]))


def test_the_page_says_which_margin_a_plan_does_not_keep(ask):
    _, out, _ = ask("estimate", *TIGHT, "--margin", "5%")
    assert out.splitlines()[1].startswith(
        "does not fit: 79.4 GiB of 79.6 GiB per GPU (100%) on the fullest stage (first), which leaves less"
    )
    assert "than the margin of 5.0%;" in out.splitlines()[1]


def test_what_does_not_fit_at_all_says_nothing_of_the_margin(ask):
    status, out, _ = ask("estimate", "llama-3-70b", "--on", "h100-sxm", "--gpus", "8", *HELD[:2], "--pp", "1", *SPACE, "--margin", "5%")
    assert status == 1
    assert "margin" not in out.splitlines()[1]


def test_a_plan_with_room_keeps_the_margin_without_a_word(ask):
    status, out, _ = ask("estimate", "llama-3-8b", "--on", "h100-sxm", "--gpus", "64", "--json")
    row = json.loads(out)
    assert status == 0
    assert row["memory"]["keeps_margin"]
    assert row["memory"]["fits_probability"] > 0.8
    assert not any("likely to fit" in line for line in sentences(row["warnings"]))
    told = {(item["name"], item["value"], item["origin"]) for item in row["assumptions"] if isinstance(item["value"], str)}
    assert ("margin", "3.5% of device memory", "default") in told


def test_memory_has_the_keys_of_its_error(ask):
    memory = json.loads(ask("estimate", *TIGHT, "--json")[1])["memory"]
    assert {"fits", "fits_probability", "needed", "needed_band", "margin", "keeps_margin", "band"} <= set(memory)
    low, high, coverage = memory["needed_band"]
    assert low < memory["needed"] < high and coverage == 0.8
    assert memory["needed"] < memory["device"]


def test_explain_shows_where_the_probability_comes_from(ask):
    status, out, _ = ask("estimate", *TIGHT, "--explain", "probability to fit")
    assert status == 0
    for piece in ("T((log(usable / needed) - centre) / half_width)", "34 rows of 2 families", "ironlaw validate --memory", "https://"):
        assert piece in out, piece


@pytest.mark.parametrize("verb", [verb for verb in (*QUESTIONS, "estimate", "plan") if "margin" in options(verb)])
def test_every_verb_with_a_margin_refuses_what_is_none(ask, verb):
    for value, words in (("5", "less than 1"), ("-1%", "from 0"), ("100%", "less than 1"), ("much", "not a number"), ("5GiB", "GiB")):
        status, out, err = ask(verb, "llama-3-8b", "--on", "h100-sxm", "--gpus", "8", "--margin", value)
        assert (status, out) == (2, ""), (verb, value)
        assert "--margin" in err and words in err and err.count("\n") == 1


def test_the_verbs_that_choose_a_plan_take_a_margin():
    taking = {verb for verb in (*QUESTIONS, "estimate", "plan") if "margin" in options(verb)}
    assert taking >= {"estimate", "plan", "compare", "solve", "money", "goodput", "sweep", "sites", "optimize"}


@pytest.mark.parametrize("verb", ["compare", "money", "goodput", "sweep"])
def test_a_plan_that_does_not_keep_the_margin_is_answered_no(ask, verb):
    run = [] if verb == "compare" else ["--tokens", "1T"]
    held = [word for word in TIGHT if verb != "sweep" or word not in ("--global-batch-size", "512")]
    assert ask(verb, *held, *run)[0] == 0
    assert ask(verb, *held, *run, "--margin", "5%")[0] == 1


def test_a_larger_margin_never_makes_more_plans_fit():
    found = [
        ironlaw.estimate("llama-3-70b", on="h100-sxm", gpus=[16, 32, 64, 128], tp=8, pp=2, recompute="none", margin=margin).fits
        for margin in (0.0, 0.02, 0.1, 0.3, 0.6, 0.99)
    ]
    for more, less in pairwise(found):
        assert not (less & ~more).any()
    assert found[0].any() and not found[-1].any()


def test_a_chosen_plan_keeps_the_margin_that_is_given():
    for margin in (0.05, 0.3, 0.5):
        memory = ironlaw.estimate("llama-3-8b", on="h100-sxm", gpus=64, margin=margin).row()["memory"]
        assert memory["keeps_margin"]
        assert memory["device"] <= (1.0 - margin) * memory["capacity_bytes"]


def test_a_search_proposes_no_plan_that_does_not_keep_the_margin(ask):
    asked = ("plan", "llama-3-8b", "--on", "h100-sxm", "--gpus", "8", "--global-batch-size", "64", "--fix", "cp=1", "--json")
    best, lean = (json.loads(ask(*asked, "--margin", margin)[1])["plans"] for margin in ("0", "30%"))
    assert lean and all(plan["memory"]["device"] <= 0.7 * plan["memory"]["capacity_bytes"] for plan in lean)
    assert best[0]["step"]["seconds"] <= lean[0]["step"]["seconds"]
    assert ask(*asked, "--margin", "99%")[0] == 1


def test_a_table_of_runs_has_a_margin_by_line(ask, tmp_path):
    path = tmp_path / "runs.csv"
    held = "llama-3-70b,h100-sxm,32,8,2,1,none,512,1,1"
    path.write_text(
        f"model,on,gpus,tp,pp,micro_batch_size,recompute,global_batch_size,zero,vpp,margin\n{held},\n{held},5%\n{held},7\n",
        encoding="utf-8",
    )
    status, out, _ = ask("estimate", "--rows", path)
    free, kept, wrong = out.splitlines()
    assert status == 2
    assert " fits (" in free and "does not fit" in kept and "margin in line 4" in wrong
