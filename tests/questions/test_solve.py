"""``solve``: the exercises of the estimation note through the public function, least and most apart, steps and errors checked."""

from __future__ import annotations

import json
import math
import re

import pytest

import paths
from ironlaw import solve
from ironlaw.cli.main import main
from ironlaw.errors import QuestionError, ValueRangeError
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
    assert any("the predicted MFU (attention as computed) of the best plan" in line for line in warnings)


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
    assert [row["step"][0] for row in answer["steps"]] == ["1", "1", "2", "3", "4", "5"]
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
    with pytest.raises(QuestionError, match="missing argument model"):
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
    assert "operations / (seconds peak efficiency)" in text and "<-" in text
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


@pytest.mark.parametrize("unknown", [{"tokens": "1T", "deadline": 30}, {"gpus": 64, "tokens": "1T"}])
def test_a_price_of_0_lets_a_budget_set_no_limit(unknown):
    """Machines that cost nothing: the answer is the one without a budget, and says so."""
    free = solve("llama-3-8b", on="h100-sxm", budget="2M", price=0, **unknown)
    without = solve("llama-3-8b", on="h100-sxm", price=0, **unknown)
    assert "--budget sets no limit: the price is 0" in free.warnings
    assert free.headline == without.headline and free.values == without.values


@pytest.mark.parametrize("given", [{"deadline": 30}, {"gpus": 64, "mfu": 0.4, "solve_for": "tokens"}])
def test_a_budget_alone_is_no_limit_at_a_price_of_0(given):
    with pytest.raises(QuestionError, match="budget with a price above 0"):
        solve("llama-3-8b", on="h100-sxm", budget="2M", price=0, **given)


ANSWERS = {  # what an answer to each unknown has, any of them
    "gpus": ("min_gpus", "max_gpus"), "time": ("min_days", "max_days", "step_seconds"), "tokens": ("max_tokens",),
    "mfu": ("min_mfu", "mfu"), "budget": ("min_usd",),
}  # fmt: skip
GIVEN = {"gpus": 64, "deadline": 60, "tokens": "300B", "mfu": 0.4, "budget": "500k", "global_batch_tokens": "1M"}
OF = {"gpus": "gpus", "time": "deadline", "tokens": "tokens", "mfu": "mfu", "budget": "budget"}
SUBSETS = [tuple(name for i, name in enumerate(GIVEN) if bits >> i & 1) for bits in range(2 ** len(GIVEN))]


@pytest.mark.parametrize("unknown", ANSWERS)
def test_every_set_of_options_is_answered_or_says_what_is_missing(unknown):
    """Each of the 64 sets of options prints a value of the unknown, or one line that names the missing option."""
    answered = refused = 0
    for names in SUBSETS:
        if OF[unknown] in names:
            continue
        asked = {name: GIVEN[name] for name in names}
        try:
            answer = solve(parameters="7B", on="h100-sxm", price=4, solve_for=unknown, **asked)
        except QuestionError as error:
            refused += 1
            assert "missing argument " in str(error) and "\n" not in str(error), names
            first = re.search(r"missing argument ([a-z_]+)", str(error))
            assert first and first[1].replace("-", "_") not in names, names
            continue
        answered += 1
        assert any(answer.values.get(key) for key in ANSWERS[unknown]), names
        assert answer.headline[0][0].isdigit() or re.search(r"\d", answer.headline[0]) or answer.headline[0].startswith("no: "), names
        assert answer.title.lower().endswith(f", solved for {unknown}")
        assert [row["step"][0] for row in answer["steps"]] == ["1", "1", "2", "3", "4", "5"], names
    assert answered and refused


def test_a_time_without_tokens_is_refused_or_of_a_step(capsys):
    assert main(["solve", "--parameters", "30B", "--on", "h100-sxm", "--gpus", "128"]) == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1 and "--tokens" in error and "--global-batch-tokens" in error
    step = solve(parameters="30B", on="h100-sxm", gpus=128, mfu=0.45, global_batch_tokens=1e6, seq_len=4096)
    # 6 x 30e9 FLOP x 244 x 4,096 tokens / (128 x 989.4e12 FLOP/s x 0.45)
    assert step["step_seconds"] == pytest.approx(6 * 30e9 * 244 * 4096 / (128 * 989.4e12 * 0.45), rel=1e-3)
    assert "3.158 s" in step.headline[0] or "3.16 s" in step.headline[0]


@pytest.mark.parametrize("mfu", [{}, {"mfu": 0.45}])
def test_a_decimal_batch_is_taken_in_whole_sequences_in_all_steps(mfu):
    answer = solve(parameters="30B", on="h100-sxm", gpus=128, tokens="600B", global_batch_tokens=1e6, seq_len=4096, **mfu)
    assert [row["step"][0] for row in answer["steps"]] == ["1", "1", "2", "3", "4", "5"]
    assert all(row["ok"] for row in answer["steps"])
    plan = next(line for line in answer.headline if line.startswith("plan"))
    assert "batch 244 x 4,096 = 999,424 tokens (1,000,000 asked)" in plan
    assert answer["checks"]["fits"] and answer["checks"]["by_hand_fits"]


def test_memory_by_hand_has_its_own_verdict():
    answer = solve(**EXERCISE, checkpoint_layers=4)
    steps = {row["step"]: row for row in answer["steps"]}
    hand, estimate = steps["1 memory by hand"], steps["1 memory by estimate"]
    assert not hand["ok"] and "125.4 GB" in hand["finding"] and "does not fit" in hand["finding"] and "micro-batch 8" in hand["finding"]
    assert "recompute" in estimate["finding"] and "tp 4" in estimate["finding"]
    ways = {row["way"]: row for row in answer["remedies"]}
    full = next(row for way, row in ways.items() if way.startswith("full recomputation"))
    assert full["fits"] and full["total"] == pytest.approx(44.05e9, rel=1e-3)  # 4 x 8.14 + 6.5 + 5 GB
    real = next(row for way, row in ways.items() if way.startswith("the same checkpoints"))
    assert real["activations"] == pytest.approx(33.39e9, rel=1e-3)  # errata E001-3: 10 x 0.0839 + 4 x 8.137 GB
    every = next(row for way, row in ways.items() if way.startswith("a checkpoint at every layer"))
    assert every["activations"] == pytest.approx(11.49e9, rel=1e-3)  # 40 x 0.0839 + 8.137 GB
    assert solve(**EXERCISE | {"flash_attention": "on", "micro_batch_size": 1})["remedies"] == []


def test_the_zero_stage_of_the_question_is_that_of_the_memory_by_hand():
    """ZeRO 1 shards the optimizer alone: weights and gradients are split by tp."""
    known = solve(**EXERCISE | {"zero": 1})["checks"]
    assert known["weights"] == known["gradients"] == pytest.approx(2 * 13e9 / 4)
    assert known["optimizer"] == pytest.approx(12 * 13e9 / 32)
    assert known["static"] == pytest.approx(known["weights"] + known["gradients"] + known["optimizer"])


def test_the_fewest_that_hold_the_states():
    answer = solve(parameters="70B", on="h100-sxm", gpus=128, tokens="2T", mfu=0.45)
    case = CASES["S001-03"]["expected"]
    rows = {row["part"]: row["size"] / GB for row in answer["states"]}
    assert [rows[name] for name in ("weights", "gradients", "optimizer states")] == [
        case["params_gb"],
        case["grads_gb"],
        case["optimizer_gb"],
    ]
    assert rows["static"] / 1000 == case["total_tb"] and answer["least GPUs for the states"] == case["min_gpus"]
    line = next(line for line in answer.headline if "hold the states" in line)
    assert "= 14.00" in line and "13.10" in line  # errata E001-8: 14.0 as sold; 1.12e12 / (81,559 x 2^20) = 13.10 of what a job may use


def test_the_parameters_of_dimensions():
    answer = solve(**EXERCISE)
    assert answer["parameters by 12 L H^2 + 2 V H"] == 12 * 40 * 5120**2 + 2 * 32000 * 5120
    assert any("rule of thumb 12.91 B" in line for line in answer.headline)


def test_a_measured_throughput_has_an_mfu_a_loss_and_causes():
    """Exercise 2: 150,000 tokens/s on 64 H100 with 7B parameters."""
    answer = solve(parameters="7B", on="h100-sxm", gpus=64, tokens_per_second="150k", mfu=0.45)
    assert answer["mfu"] == pytest.approx(6 * 7e9 * 150e3 / (64 * 989.4e12), rel=1e-3)  # 9.95 %
    assert answer["tokens of a second at the given MFU"] == pytest.approx(0.45 * 64 * 989.4e12 / (6 * 7e9), rel=1e-3)  # 678 K
    assert any("22.1%" in line for line in answer.headline)  # errata E001-1: 22 %, not 11 %
    run = answer["measured"]
    assert run["of_predicted"] == pytest.approx(run["predicted_seconds"] / run["measured_seconds"])
    rows = answer["suspects"]
    gap = run["measured_seconds"] - run["predicted_seconds"]
    for row in rows:
        assert row["would_take"] == pytest.approx(row["takes"] + gap)
        assert row["check"]
    assert {"GEMMs slower than peak", "memory-bound work", "network", "host", "data"} <= {row["part"] for row in rows}
    assert all(name in answer.headline[0] for name in ("(attention as computed; ", "full square ", "6N 9.95%"))


def test_a_measured_rate_of_operations_has_the_mfu_of_its_tokens():
    """420 TFLOP/s on an H100 are 42.5 % of its 989.4 (dense bf16), in whatever convention the FLOP are counted."""
    asked = {"parameters": "8B", "on": "h100-sxm", "gpus": 64}
    for work in ("6n", "model", "full-square"):
        assert solve(**asked, work=work, flops_per_gpu="420TFLOP/s")["mfu"] == pytest.approx(420 / 989.4, rel=1e-3)
    same = solve(**asked, work="6n", tokens_per_second=420e12 * 64 / (6 * 8e9))
    assert solve(**asked, work="6n", flops_per_gpu="420TFLOP/s")["measured"] == same["measured"]
    with pytest.raises(QuestionError, match="leave one of the two out"):
        solve(**asked, flops_per_gpu="420TFLOP/s", tokens_per_second="150k")


def test_a_measured_throughput_gives_time_and_budget():
    asked = {"parameters": "7B", "on": "h100-sxm", "gpus": 64, "tokens_per_second": "150k", "price": 4}
    time = solve(**asked, tokens="1T", solve_for="time")
    assert time["min_days"] == pytest.approx(1e12 / 150e3 / 86400)
    assert solve(**asked, deadline=30, solve_for="tokens")["max_tokens"] == pytest.approx(150e3 * 30 * 86400)
    assert solve(**asked, tokens="1T", solve_for="budget")["min_usd"] == pytest.approx(64 * 4 * 1e12 / 150e3 / 3600)


def test_an_impossible_throughput_is_not_feasible():
    answer = solve(parameters="7B", on="h100-sxm", gpus=8, tokens_per_second="1M")
    assert not answer.feasible and any("impossible" in line for line in answer.headline)


def test_roundings_of_steps_stand_side_by_side():
    answer = solve("llama-3-8b", "h100-sxm", gpus=64, tokens="1.0001B", global_batch_tokens="1Mi")
    rows = {row["rounding"]: row for row in answer["roundings"]}
    assert (rows["up"]["steps"], rows["down"]["steps"]) == (954.0, 953.0)
    assert [name for name, row in rows.items() if row["used"]] == ["up"]
    for how in ("up", "down", "exact"):
        chosen = solve("llama-3-8b", "h100-sxm", gpus=64, tokens="1.0001B", global_batch_tokens="1Mi", rounding=how)
        assert chosen["min_days"] == pytest.approx(rows[how]["days"], rel=1e-12)
    by_hand = solve(parameters="7B", on="h100-sxm", gpus=64, tokens="1.0001B", global_batch_tokens="1Mi", mfu=0.4)
    assert [row["rounding"] for row in by_hand["roundings"] if row["used"]] == ["exact"]


def test_tokens_per_parameter_of_a_given_count():
    assert solve(parameters="30B", on="h100-sxm", gpus=128, tokens="20x", mfu=0.45)["work"] == pytest.approx(6 * 30e9 * 600e9)


def test_a_count_of_gpus_has_the_planners_best_plan():
    """640 GPUs: solve, estimate and plan agree, and the headline names the batch that was chosen."""
    import ironlaw

    answer = solve(parameters="30B", on="h100-sxm", gpus=640, tokens="600B")
    shape = ironlaw.questions.solve.workload.usual_shape(30e9)
    alone = ironlaw.estimate(shape, on="h100-sxm", gpus=640, tokens=600e9)
    assert answer["min_days"] == pytest.approx(alone.row(0)["run"]["days"])
    batch = alone.row(0)["plan"]["global_batch_size"]
    assert any(f"batch {batch:,} x 8,192" in line and "chosen" in line for line in answer.headline)


def test_active_parameters_count_by_6n():
    """A mixture of experts computes with the parameters that are active."""
    answer = solve("mixtral-8x7b", "h100-sxm", gpus=64, tokens="1T", mfu=0.3, work="6n")
    assert 12e9 < float(answer["FLOP per token"]) / 6 < 14e9  # 12.9 B of 46.7 B are active
