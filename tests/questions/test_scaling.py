"""Scaling laws: the worked cases, published points, relations, what is refused, and the command."""

from __future__ import annotations

import contextlib
import io
import json
import math
from types import SimpleNamespace

import pytest

import paths
from ironlaw import scaling
from ironlaw.cli.main import main
from ironlaw.errors import IronlawError
from ironlaw.law import batches, flops
from ironlaw.law import scaling as law

CASES = {case["id"]: case for case in json.loads((paths.DATA / "oracle_scaling.json").read_text(encoding="utf-8"))}


def s004_01(i):
    return {"tokens": batches.batch_of_parameters(i["N"], i["seq"]), "units": batches.batch_of_parameters(i["N"], 1)}


def s004_02(i):
    found = scaling(parameters=i["N"], tokens=i["D"])
    return {"C": found["compute"], "tokens": found["best_batch"]}


def s004_13(i):
    found = scaling(parameters=i["N"])
    return {"C": found["compute"], "D": law.rule_tokens(i["N"], 20)}


def s003_71(i):
    return {"tokens": batches.batch_tokens(i["seqs"], i["seq"])}


def s003_74(i):
    rates = {f"step{k}": batches.warmup_cosine(k, i["peak"], 0, i["warmup"], i["total"]) for k in (250, 500, 25250)}
    return rates | {"lr_scaled": batches.linear_learning_rate(0.1, 2048, 256)}


ANSWERS = {"S004-01": s004_01, "S004-02": s004_02, "S004-13": s004_13, "S003-71": s003_71, "S003-74": s003_74}


@pytest.mark.parametrize("name", sorted(CASES))
def test_case(name):
    case = CASES[name]
    found = ANSWERS[name](case["inputs"])
    assert set(found) == set(case["expected"])
    for key, expected in case["expected"].items():
        assert float(found[key]) == pytest.approx(expected, rel=case["rel_tol"], abs=0.0), key


# Published points


def test_the_batch_of_deepseek_67b():
    """They trained 67B on 2T tokens with 4,608 sequences of 4,096."""
    found = scaling(parameters="67B", tokens="2T")
    assert float(found["best_batch"]) == pytest.approx(4608 * 4096, rel=0.03)
    assert float(found["best_learning_rate"]) == pytest.approx(3.2e-4, rel=0.01)


def test_hoffmann_s_optima_at_gopher_s_compute():
    """Table 3 says 67B for approach 1, appendix D 40B for approach 3."""
    assert float(law.frontier_parameters(5.76e23)) == pytest.approx(67e9)
    assert float(law.optimal_parameters(5.76e23, 0)) == pytest.approx(40e9, rel=0.02)


@pytest.mark.parametrize(("operations", "billions"), [(1.92e19, 0.4), (1.21e20, 1), (1.23e22, 10), (3.85e24, 175)])
def test_the_table_of_approach_1_at_other_sizes(operations, billions):
    assert float(law.frontier_parameters(operations)) == pytest.approx(billions * 1e9, rel=0.04)


def test_the_refit_comes_to_twenty_tokens_a_parameter():
    """What Besiroglu et al. conclude, and Hoffmann et al.'s own third fit does not."""
    parameters = float(law.optimal_parameters(5.76e23, 1))
    assert float(law.affordable_tokens(5.76e23, parameters)) / parameters == pytest.approx(20, rel=0.15)


# Relations


@pytest.mark.parametrize("fit", [0, 1])
@pytest.mark.parametrize("operations", [1e19, 1e21, 1e24])
def test_no_other_size_has_less_loss(fit, operations):
    best = law.optimal_parameters(operations, fit)
    least = law.loss(best, law.affordable_tokens(operations, best), fit)
    for factor in (0.5, 0.9, 0.99, 1.01, 1.1, 2.0):
        assert law.loss(factor * best, law.affordable_tokens(operations, factor * best), fit) > least


@pytest.mark.parametrize("fit", ["hoffmann", "besiroglu"])
def test_the_cheapest_run_of_a_loss_is_the_best_of_its_compute(fit):
    found = scaling(parameters="8B", tokens="15T", fit=fit)
    size, operations = float(found["same_loss_parameters"]), float(found["same_loss_compute"])
    assert size == pytest.approx(float(law.optimal_parameters(operations, fit == "besiroglu")), rel=1e-4)
    assert law.loss(size, found["same_loss_tokens"], fit == "besiroglu") == pytest.approx(float(found["loss"]), rel=1e-12)
    assert operations < float(found["compute"])


def test_more_inference_wants_smaller_models():
    sizes = [
        float(scaling(parameters="70B", tokens="1.4T", inference_tokens=t)["lifetime_parameters"]) for t in ("1B", "1T", "10T", "100T")
    ]
    assert sizes == sorted(sizes, reverse=True)
    assert sizes[0] == pytest.approx(float(scaling(parameters="70B", tokens="1.4T")["same_loss_parameters"]), rel=0.01)


def test_a_lifetime_is_training_and_two_flop_a_token():
    found = scaling(parameters="8B", tokens="15T", inference_tokens="10T")
    size, count = found["lifetime_parameters"], found["lifetime_tokens"]
    assert float(found["lifetime_compute"]) == pytest.approx(float(flops.training(size, count) + 2 * size * 10e12), rel=1e-12)


def test_any_two_decide_the_third():
    whole = scaling(parameters="7B", tokens="2T")
    operations = float(whole["compute"])
    for given in ({"parameters": "7B", "compute": operations}, {"tokens": "2T", "compute": operations}):
        found = scaling(**given)
        assert float(found["loss"]) == pytest.approx(float(whole["loss"]), rel=1e-12)


def test_the_critical_batch_doubles_both():
    found = scaling(parameters="7B", tokens="2T", global_batch_tokens=float(scaling(parameters="7B", tokens="2T")["best_batch"]))
    assert float(found["steps_over_least"]) == float(found["tokens_over_least"]) == 2.0


def test_a_mixture_computes_with_its_active_parameters():
    found = scaling("mixtral-8x7b", tokens="1T")
    assert float(found["compute"]) == pytest.approx(6 * 12.9e9 * 1e12, rel=0.01)
    assert found["total_parameters"] == pytest.approx(46.7e9, rel=0.01)
    assert float(found["loss_of_all_parameters"]) < float(found["loss"])


def test_the_schedule_rises_and_falls_between_its_ends():
    found = scaling(parameters="7B", tokens="2T", global_batch_tokens="4M", learning_rate=3e-4, base_batch_tokens="1M", warmup_steps=2000)
    rates = {row["step"]: row["rate"] for row in found["schedule"]}
    assert rates[0.0] == 0.0
    assert rates[2000.0] == max(rates.values()) == pytest.approx(6e-4)
    assert min(rate for step, rate in rates.items() if step) == rates[float(math.ceil(2e12 / 2**22))] == pytest.approx(6e-5)
    assert float(found["linear_learning_rate"]) == pytest.approx(12e-4)


def test_values_outside_the_fits_are_warned_of():
    assert not any("loss was fitted" in w for w in scaling(parameters="1B", tokens="20B").warnings)
    assert sum("loss was fitted" in w for w in scaling(parameters="70B").warnings) == 2


# Refusals


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({}, "missing argument model"),
        ({"model": "llama-3-8b", "parameters": "8B"}, "not both"),
        ({"parameters": "8B", "tokens": "1T", "compute": 1e23}, "give two"),
        ({"parameters": "8B", "tokens": "1T", "tokens_per_parameter": 20}, "leave one out"),
        ({"compute": 1e1}, "outside every fit"),
        ({"compute": 1e60}, "outside every fit"),
        ({"parameters": "0.5"}, "whole number"),
        ({"parameters": "8B", "fit": "kaplan"}, "hoffmann"),
        ({"parameters": "8B", "learning_rate": 1e-3}, "base_batch_tokens"),
        ({"parameters": "8B", "warmup_steps": 10}, "global_batch_tokens"),
        ({"parameters": "8B", "warmup_steps": 1e9, "global_batch_tokens": "1M"}, "give fewer"),
        ({"parameters": "8B", "tokens": "-1"}, "at least 1"),
        ({"parameter": "8B"}, "parameters"),
    ],
)
def test_a_wrong_question_is_refused_in_one_line(options, said):
    with pytest.raises(IronlawError) as error:
        scaling(**options)
    assert said in str(error.value)
    assert "\n" not in str(error.value)


# The command


def command(*arguments):
    """The command in this process: its status and what it prints."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        status = main(["scaling", *arguments])
    return SimpleNamespace(returncode=status, stdout=out.getvalue(), stderr=err.getvalue())


def test_the_page():
    done = command("llama-3-8b", "--tokens", "15T", "--inference-tokens", "10T")
    assert done.returncode == 0, done.stderr
    assert "least compute for that loss" in done.stdout


def test_json_and_explain():
    data = json.loads(command("--compute", "5.88e23", "--json").stdout)
    assert {"optima", "terms", "headline", "fit"} <= set(data)
    assert "0.2920 C^0.3271" in command("--compute", "5.88e23", "--explain", "best_batch").stdout
    assert "inference compute" in command("--parameters", "8B", "--inference-tokens", "1T", "--explain", "lifetime_compute").stdout


def test_status_and_help():
    done = command("--parameters", "no")
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1
    assert "--inference-tokens" in command("--help").stdout
