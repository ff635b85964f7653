"""``solve``: the exercises of the estimation note through the public function, least and most apart, steps and errors checked."""

from __future__ import annotations

import json
import math

import pytest

import paths
from ironlaw.cli.main import main
from ironlaw.errors import QuestionError, ValueRangeError
from ironlaw.questions.solve import solve
from ironlaw.questions.solve.options import OPTIONS

CASES = {
    case["id"]: case
    for case in json.loads((paths.DATA / "oracle_cases.json").read_text(encoding="utf-8"))["cases"]
    if case["id"].startswith("S001")
}
GB = 1e9
EXERCISE = {  # exercise 1: 13 B on 32 GPUs
    "model": "hidden_size=5120,num_hidden_layers=40,num_attention_heads=40,vocab_size=32000,max_position_embeddings=4096",
    "parameters": "13B", "on": "h100-sxm", "gpus": 32, "tokens": "300B", "tp": 4, "pp": 1, "zero": 3, "micro_batch_size": 8,
    "global_batch_size": 64, "mfu": 0.45, "flash_attention": "off",
}  # fmt: skip


def check(name, found):
    case = CASES[name]
    assert set(found) == set(case["expected"]), name
    for key, value in found.items():
        assert value == pytest.approx(case["expected"][key], rel=case["rel_tol"]), (name, key)


def test_the_opening_question():
    answer = solve(parameters="30B", on="h100-sxm", gpus=128, mfu=0.45, global_batch_tokens=1e6, seq_len=4000, micro_batch_size=1)
    check("S001-12", {
        "static_gb_per_gpu": answer["checks"]["static"] / GB,
        "t_step": answer["step by hand"],
        "tokens_s": answer["tokens of a second"],
    })  # fmt: skip


def test_static_memory_of_exercise_1():
    known = solve(**EXERCISE)["checks"]
    check("S001-13", {
        "params_gb": known["weights"] / GB, "grads_gb": known["gradients"] / GB, "optimizer_gb": known["optimizer"] / GB,
        "total_gb": known["static"] / GB,
    })  # fmt: skip


def test_activations_of_exercise_1():
    known = solve(**EXERCISE, checkpoint_layers=4)["checks"]
    check("S001-15", {"act_gb": known["activations"] / GB, "total_gb": known["by_hand"] / GB})
    full = known["window"]
    check("S001-16", {"act_gb": full / GB, "total_gb": (full + known["by_hand"] - known["activations"]) / GB})
    check("S001-18", {"k_opt": known["best_interval"], "min_factor": known["least_at_best_interval"] / known["layer"]})


def test_layers_of_exercise_1():
    def layer(sp, flash):
        return solve(**EXERCISE | {"sp": sp, "flash_attention": flash})["checks"]["layer"] / GB

    check("S001-19", {
        "no_sp_gb": layer("off", "off"), "sp_gb": layer("on", "off"),
        "flash_sp_gb": layer("on", "on"), "flash_no_sp_gb": layer("off", "on"),
    })  # fmt: skip


def test_exact_checkpoints_need_less_than_the_simple_formula():
    known = solve(**EXERCISE, checkpoint_layers=4)["checks"]
    assert known["exact"] < known["activations"] / 3  # errata E001-3


def test_the_gpus_that_a_budget_pays_for():
    answer = solve(parameters="30B", on="h100-sxm", deadline=30, budget="2M", price=4)
    ways = {row["way"]: row for row in answer["ways"]}
    most = answer["max_gpus"]
    check("S001-22", {
        "gpu_hours": answer["GPU-hours of the budget"], "hours": answer["GPU-hours of the budget"] / most, "max_gpus": most,
        "max_gpus_int": ways["the most"]["gpus"], "cost_640": ways["a round count"]["usd_to_deadline"],
        "cost_512": ways["a power of two"]["usd_to_deadline"],
    })  # fmt: skip


@pytest.mark.parametrize("name", [name for name in CASES if name.startswith("S001-23")])
def test_the_mfu_a_deadline_needs(name):
    asked = CASES[name]["inputs"]
    answer = solve(parameters=asked["psi"], on="h100-sxm", gpus=asked["gpus"], tokens=asked["tokens"], deadline=asked["days"])
    check(name, {"total_flops": answer["work"], "required_flops_s": answer["rate the deadline needs"], "mfu_pct": 100 * answer["min_mfu"]})
    assert answer["solved_for"] == "mfu" and answer.feasible


def test_the_fewest_gpus():
    found = {}
    for name, tokens in {"600B": 600e9, "2T": 2e12}.items():
        answer = solve(parameters="30B", on="h100-sxm", tokens=tokens, deadline=30, mfu=0.45, price=4, budget="2M")
        found |= {f"min_gpus_{name}": answer["min_gpus"], f"cost_{name}": answer["rent of the fewest"]}
        assert answer["min_gpus"] < answer["max_gpus"]
    check("S001-24", found)


def test_each_unknown_is_solved_from_the_others():
    """Solving for one gives back what the others were solved with."""
    base = {"parameters": "30B", "on": "h100-sxm", "price": 4}
    days = solve(**base, gpus=512, tokens="2T", mfu=0.4)["min_days"]
    assert solve(**base, gpus=512, tokens="2T", deadline=days)["min_mfu"] == pytest.approx(0.4)
    assert solve(**base, gpus=512, deadline=days, mfu=0.4)["max_tokens"] == pytest.approx(2e12)
    assert solve(**base, tokens="2T", deadline=days * (1 + 1e-9), mfu=0.4)["min_gpus"] == 512
    cost = solve(**base, gpus=512, tokens="2T", mfu=0.4, solve_for="budget")["min_usd"]
    assert cost == pytest.approx(512 * days * 24 * 4)
    assert solve(**base, gpus=512, tokens="2T", mfu=0.4, budget=cost)["max_days"] == pytest.approx(days)
    assert solve(**base, gpus=512, mfu=0.4, budget=cost, solve_for="tokens")["max_tokens"] == pytest.approx(2e12)
    assert solve(**base, gpus=512, tokens="2T", budget=cost, solve_for="mfu")["min_mfu"] == pytest.approx(0.4)


def test_the_mfu_is_predicted():
    import ironlaw

    answer = solve("llama-3-70b", "h100-sxm", gpus=256, tokens="1T")
    alone = ironlaw.estimate("llama-3-70b", on="h100-sxm", gpus=256, tokens="1T")
    assert answer["mfu"] == pytest.approx(float(alone.mfu[0]))
    assert answer["min_days"] == alone.row(0)["run"]["days"]
    assert answer["min_days"] == pytest.approx(1e12 / float(alone.tokens_per_second[0]) / 86400, rel=1e-5)  # the last step is whole


def test_one_accelerator_is_named_in_the_singular():
    headline = "\n".join(solve("gpt-2", "h100-sxm", gpus=1, tokens="1B").headline)
    assert "for 1 GPU\n" in headline and "1 GPU at " in headline


def test_an_mfu_above_the_predicted_one_is_warned_of():
    warnings = solve("llama-3-70b", "h100-sxm", tokens="2T", deadline=60, mfu=0.8).warnings
    assert any("estimate predicts" in line for line in warnings)


def test_too_few_gpus_for_the_memory_are_not_feasible():
    answer = solve("llama-3-70b", "h100-sxm", gpus=4, tokens="1T", mfu=0.4)
    assert not answer.feasible and "does not fit" in answer.headline[0]


def test_every_number_of_the_headline_is_explained():
    answer = solve(parameters="30B", on="h100-sxm", gpus=640, tokens="2T", deadline=30)
    names = {term.name for term in answer.terms}
    assert {"work", "MFU the deadline needs", "predicted MFU", "tokens of a second", "static memory by hand"} <= names
    assert len(names) == len(answer.terms)


def test_the_fewest_by_estimate_reach_the_deadline():
    answer = solve("llama-3-70b", "h100-sxm", tokens="1T", deadline=60)
    later = solve("llama-3-70b", "h100-sxm", tokens="1T", gpus=answer["min_gpus"])
    assert later["min_days"] <= 60


def test_the_five_steps_and_the_usual_errors_are_listed():
    answer = solve("llama-3-70b", "h100-sxm", gpus=256, tokens="1T")
    assert [row["step"][0] for row in answer["steps"]] == ["1", "2", "3", "4", "5"]
    assert all(row["ok"] for row in answer["steps"])
    assert [row["error"] for row in answer["errors"]] == [
        "forgetting optimizer states", "ignoring activations", "100% MFU", "ignoring communication",
    ]  # fmt: skip
    assert "4x too little" in answer["errors"][0]["consequence"]  # errata E001-7: four times, not three
    assert answer["checks"]["parts"]["activations"] > 0


@pytest.mark.parametrize(
    "options",
    [
        {"gpus": 8, "tokens": "15T", "deadline": 10},
        {"tokens": "2T", "deadline": 30, "budget": "10k", "mfu": 0.45},
        {"gpus": 256, "tokens": "2T", "budget": 1000, "mfu": 0.4},
        {"gpus": 256, "tokens": "2T", "deadline": 2, "mfu": 0.4, "solve_for": "budget"},
    ],
)
def test_an_unmet_limit_is_not_feasible(options):
    answer = solve("llama-3-8b", "h100-sxm", price=4, **options)
    assert not answer.feasible
    assert answer.headline[0].startswith(("no: ", "at least"))


@pytest.mark.parametrize(
    ("options", "error", "words"),
    [
        ({"mfu": 1.2}, ValueRangeError, "at most 1"),
        ({"gpus": 8, "deadline": 3, "tokens": "1T", "mfu": 0.4}, QuestionError, "leave out"),
        ({"gpus": 8, "solve_for": "gpus"}, QuestionError, "leave one"),
        ({"tokens": "1T"}, QuestionError, "--deadline"),
        ({"deadline": 3}, QuestionError, "--tokens"),
        ({"gpus": 8, "mfu": 0.4, "solve_for": "tokens"}, QuestionError, "--deadline"),
        ({"deadline": -3, "tokens": "1T"}, ValueRangeError, "more than 0"),
        ({"budget": "0", "deadline": 3}, ValueRangeError, "more than 0"),
        ({"days": 3}, QuestionError, "no option"),
    ],
)
def test_refusals(options, error, words):
    with pytest.raises(error, match=words) as caught:
        solve(**{"model": "llama-3-8b", "on": "h100-sxm", **options})
    assert "\n" not in str(caught.value)


def test_a_model_or_its_size_is_needed():
    with pytest.raises(QuestionError, match="MODEL"):
        solve(on="h100-sxm", gpus=8)


def test_the_command(capsys):
    words = ["solve", "--parameters", "30B", "--on", "h100-sxm", "--tokens", "2T", "--deadline", "30", "--budget", "2M", "--price", "4"]
    assert main([*words, "--mfu", "0.45"]) == 0
    page = capsys.readouterr().out
    assert "at least 313 GPUs" in page and "at most 694 GPUs" in page and "The five steps" in page
    assert main([*words, "--json"]) == 0
    data = json.loads(capsys.readouterr().out)
    assert data["feasible"] and data["max_gpus"] == pytest.approx(694.4444444)
    assert {"terms", "steps", "errors", "ways", "checks"} <= set(data)
    assert main([*words, "--mfu", "0.45", "--explain", "fewest GPUs"]) == 0
    text = capsys.readouterr().out
    assert "ceil(operations / (seconds peak efficiency))" in text and "<-" in text
    assert main(["solve", "llama-3-8b", "--on", "h100-sxm", "--gpus", "8", "--tokens", "15T", "--deadline", "10"]) == 1
    assert main(["solve", "llama-3-8b", "--on", "h100-sxm", "--mfu", "2"]) == 2
    capsys.readouterr()
    assert main(["solve", "--help"]) == 0
    text = capsys.readouterr().out
    assert all(f"--{name.replace('_', '-')}" in text for name in OPTIONS if name != "model")
    assert math.isfinite(data["checks"]["static"])


def test_causes_of_a_low_mfu_are_the_whole_step():
    answer = solve("llama-3-8b", "h100-sxm", gpus=256, tokens="1T", deadline=14, solve_for="mfu")
    rows = next(table.rows for table in answer.tables if table.name == "causes")
    assert sum(row["share"] for row in rows) == pytest.approx(1.0, abs=2e-3)
    assert rows[0]["share"] == pytest.approx(answer["checks"]["predicted_mfu"])


def test_a_budget_pays_for_a_run_that_ends_before_the_deadline():
    """Accelerators are paid until the run ends: 48 of them until the deadline would exceed the budget."""
    asked = {"model": "llama-3-8b", "on": "h100-sxm", "tokens": 1e12, "deadline": 28, "price": 3.78}
    enough, short = solve(**asked, budget=115e3), solve(**asked, budget=100e3)
    assert enough.feasible and not short.feasible
    values = enough.values
    assert values["run_usd"] == pytest.approx(values["gpus"] * values["run_days"] * 24 * 3.78)
    assert values["run_days"] < 28 and values["run_usd"] < 115e3 < values["gpus"] * 28 * 24 * 3.78


@pytest.mark.parametrize("unknown", [{"tokens": "1T", "deadline": 30}, {"gpus": 64}, {"gpus": 64, "tokens": "1T"}])
def test_a_price_of_0_lets_a_budget_set_no_limit(unknown):
    """Machines that cost nothing: the answer is the one without a budget, and says so."""
    free = solve("llama-3-8b", on="h100-sxm", budget="2M", price=0, **unknown)
    without = solve("llama-3-8b", on="h100-sxm", price=0, **unknown)
    assert "--budget sets no limit: the price is 0" in free.warnings
    assert free.headline == without.headline and free.values == without.values


@pytest.mark.parametrize("given", [{"deadline": 30}, {"gpus": 64, "mfu": 0.4, "solve_for": "tokens"}])
def test_a_budget_alone_is_no_limit_at_a_price_of_0(given):
    with pytest.raises(QuestionError, match="--budget with a price above 0"):
        solve("llama-3-8b", on="h100-sxm", budget="2M", price=0, **given)
