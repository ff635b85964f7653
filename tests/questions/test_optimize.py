"""``ironlaw optimize``: techniques tried by estimates, combined and classified; refusals, the command."""

from __future__ import annotations

import json

import pytest

import ironlaw
import paths
from ironlaw import optimize, units
from ironlaw.cli.main import main
from ironlaw.errors import IronlawError
from ironlaw.questions.optimize.advice import CLASSES
from ironlaw.questions.optimize.rules_of_thumb import classify_bottleneck, recommend_scale
from ironlaw.questions.optimize.techniques import CAPACITY, ROOFS, TECHNIQUES
from ironlaw.terms import BOUNDS

CASES = {c["id"]: c for c in json.loads((paths.DATA / "oracle_lessons.json").read_text(encoding="utf-8"))}
ASK = {"on": "h100-sxm", "gpus": 64, "tp": 8, "pp": 2, "vpp": 1, "recompute": "full", "global_batch_size": 256, "micro_batch_size": 1}


@pytest.fixture(scope="module")
def answer():
    return optimize("llama-3-70b", **ASK, zero=1)


def test_the_rule_of_thumb_on_scale():
    case = CASES["S003-67"]
    read = [recommend_scale(units.parse_count(model, "model"), units.parse(data, "B", "data")) for model, data in case["inputs"]["cases"]]
    assert read == case["expected"]["answers"]


def test_the_flowchart_of_utilisation():
    case = CASES["S003-68"]
    read = [classify_bottleneck({"gpu_utilization": busy / 100.0, "memory_used": used}) for busy, used in case["inputs"]["cases"]]
    assert read == case["expected"]["answers"]


def test_every_roof_has_a_class_and_every_technique_names_the_roofs_it_lowers():
    assert set(CLASSES) == set(BOUNDS) == set(ROOFS) - {CAPACITY}
    for technique in TECHNIQUES:
        assert technique.moves in ("operations", "peak", "efficiency", "memory") and technique.axis in ("algorithm", "machine", "data")
        assert technique.lowers and set(technique.lowers) <= set(ROOFS)
        assert technique.moves != "memory" or CAPACITY in technique.lowers
    assert len({t.name for t in TECHNIQUES}) == len(TECHNIQUES)


def test_a_gain_is_that_of_the_estimate_of_the_changed_plan(answer):
    row = next(t for t in answer["techniques"] if t["technique"] == "no recomputation")
    rates = [ironlaw.estimate("llama-3-70b", **{**ASK, "recompute": how}, zero=1).tokens_per_second[0] for how in ("full", "none")]
    assert row["gain"] == pytest.approx(rates[1] / rates[0] - 1.0, rel=1e-12)


def test_time_stays_above_amdahls_bound(answer):
    bounded = [row for row in answer["techniques"] if row["at_best"] is not None and row["moves"] == "efficiency"]
    assert bounded
    for row in bounded:
        assert 0.0 <= row["at_best"] - 1e-9 <= row["ratio"], row


def test_the_total_gain_is_the_product_of_the_gains_of_the_steps(answer):
    together = 1.0
    for step in answer["composed"]:
        together *= 1.0 + step["gain"]
        assert step["together"] == pytest.approx(together - 1.0, rel=1e-9)
        assert step["memory"] <= 1.0
    assert [s["step"] for s in answer["composed"]] == list(range(1, len(answer["composed"]) + 1))
    assert answer["composed"][0]["technique"] == next(t["technique"] for t in answer["techniques"] if t["fits"] and not t["training"])


def test_money_energy_and_carbon_of_tokens_go_with_their_time(answer):
    """With as many accelerators, each is the plan's times the time per token."""
    base = answer["base"]
    for row in answer["techniques"]:
        for name in ("usd", "joules", "kg_co2e"):
            assert row[name] == pytest.approx(base[name] * row["ratio"], rel=1e-9)
    run = ironlaw.estimate("llama-3-70b", **ASK, zero=1, tokens="1T").row(0)["run"]
    assert base["usd"] == pytest.approx(run["usd"] / 1e6, rel=1e-5) and base["joules"] == pytest.approx(run["kwh"] * 3.6, rel=1e-5)


def test_mixed_precision_is_far_the_best_of_a_model_in_fp32():
    """The A100 multiplies bf16 16 times as fast as fp32 outside tensor cores (312 and 19.5 TFLOP/s)."""
    answer = optimize("gpt-2-xl", on="a100-sxm-80gb", gpus=8, precision="fp32", global_batch_size=512)
    first = answer["techniques"][0]
    assert first["technique"] in ("precision bf16", "precision fp16") and 1 / 16 < first["ratio"] < 0.15
    assert "times the tokens/s" in answer.headline[1] and "precision" in answer.headline[1]
    assert answer["composed"][0]["technique"] == first["technique"]


def test_the_plan_is_held_while_one_technique_changes(answer):
    """Recomputation off on the same mesh needs as much more memory as two estimates of that mesh say."""
    row = next(t for t in answer["techniques"] if t["technique"] == "no recomputation")
    sizes = [ironlaw.estimate("llama-3-70b", **{**ASK, "recompute": how}, zero=1).device_bytes[0] for how in ("full", "none")]
    assert row["saved"] == pytest.approx(sizes[0] - sizes[1], rel=1e-12) and row["saved"] < -10 * 2**30


def test_prefetch_is_tried_where_the_question_describes_a_loader():
    ask = {"on": "h100-sxm", "gpus": 8, "tp": 1, "pp": 1, "global_batch_size": 64, "most": 1}
    without = optimize("llama-3-8b", **ask)
    assert "no input pipeline" in next(row["why_not"] for row in without["not_tried"] if row["technique"] == "prefetch of batches")
    waits = optimize("llama-3-8b", **ask, stages="serial", transform_time="100ms", workers=1)
    row = next(t for t in waits["techniques"] if t["technique"] == "prefetch of batches")
    step = without["base"]["seconds"]
    assert waits["base"]["waiting"] == pytest.approx(8 * 0.1, rel=0.01)  # 8 samples of an accelerator, one after the other
    assert row["seconds"] == pytest.approx(max(step, 8 * 0.1), rel=0.01) and row["lowers"] == "data"
    assert {r["roof"]: r["share"] for r in waits["roofs"]}["data"] == pytest.approx(0.8 / (step + 0.8), rel=0.02)
    workers = optimize("llama-3-8b", **ask, transform_time="10s", workers=1)["techniques"][0]
    assert workers["technique"] == "as many loader workers as needed" and workers["change"]["workers"] == -(-80 // step)


def test_what_changes_the_training_is_marked_and_left_out_of_the_composition(answer):
    marked = {t.name for t in TECHNIQUES if t.trains}
    assert {"8-bit Adam", "adapters (LoRA)", "adapters on nf4 weights (QLoRA)", "batch doubled by accumulation"} <= marked
    assert {row["technique"] for row in answer["techniques"] if row["training"]} <= marked
    assert not marked & {step["technique"] for step in answer["composed"]}


def test_seventy_billion_on_eight_40_gb_accelerators_finds_qlora():
    answer = optimize("llama-3-70b", on="a100-sxm-40gb", gpus=8)
    rows = {row["technique"]: row for row in answer["techniques"]}
    assert rows["adapters on nf4 weights (QLoRA)"]["fits"] and "QLoRA" in " ".join(answer.headline)
    fits = [row["fits"] for row in answer["techniques"]]
    assert fits == sorted(fits, reverse=True)
    left = [row["device"] for row in answer["techniques"] if not row["fits"]]
    assert left == sorted(left)


def test_the_fewest_techniques_that_fit_are_found():
    """Seven billion parameters on 24 GB: neither adapters nor anything else is enough, adapters with another one are."""
    answer = optimize("llama-2-7b", on="rtx-4090", gpus=1, recompute="none", micro_batch_size=1, offload="none", framework="torchtune")
    assert not any(row["fits"] for row in answer["techniques"])
    together = answer["combinations"]
    assert together and all(row["fits"] and row["technique"].count(" + ") == 1 for row in together)
    assert all(row["training"] == "yes" and "adapters" in row["technique"] for row in together)
    assert together[0]["device"] < 24 * 2**30


def test_a_technique_that_is_not_tried_has_its_reason(answer):
    reasons = {row["technique"]: row["why_not"] for row in answer["not_tried"]}
    assert "no nvfp4" in reasons["precision nvfp4"] and "flash attention keeps no scores" in reasons["selective recomputation"]
    assert all(reasons.values())
    plain = optimize("llama-3-70b", **{**ASK, "recompute": "none"}, zero=1, flash_attention="off")
    assert next(t for t in plain["techniques"] if t["technique"] == "selective recomputation")["saved"] > 0


def test_techniques_that_set_the_same_option_conflict(answer):
    rows = {t["technique"]: t for t in answer["techniques"]}
    assert "norms and activations recomputed" in rows["no recomputation"]["clashes"]
    assert "no recomputation" in rows["norms and activations recomputed"]["clashes"]


def test_seven_billion_on_24_gb():
    """Weights, gradients and states of 7B parameters are 112 GB: the headline names what alone makes them fit in 24 GB, if anything."""
    answer = optimize("llama-2-7b", on="rtx-4090", gpus=1, recompute="none", micro_batch_size=1, offload="none")
    assert "does not fit" in answer.headline[1]
    freed = {t["technique"]: t["saved"] for t in answer["techniques"]}
    assert freed["optimizer in the host"] > freed["8-bit Adam"] > 0


def test_accumulation_saves_memory_and_no_money():
    """A quarter of the accelerators with four times the micro-batches needs as many accelerator hours."""
    ask = {
        "on": "h100-sxm",
        "global_batch_size": 256,
        "tokens": "10B",
        "zero": 1,
        "tp": 1,
        "pp": 1,
        "micro_batch_size": 1,
        "dp_replicate": 1,
    }
    hours = [ironlaw.estimate("llama-3-8b", gpus=gpus, **ask).row(0)["run"]["gpu_hours"] for gpus in (32, 8)]
    assert hours[1] == pytest.approx(hours[0], rel=0.1)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ([], "missing MODEL"),
        (["llama-3-8b"], "missing option --on"),
        (["llama-3-8b", "--on", "h100-sxm", "--gpus", "8", "--most", "0"], "--most"),
        (["--gpu-utilization", "145%"], "--gpu-utilization"),
        (["--table", "recipes"], "unknown CHAPTER 'recipes'"),
        (["llama-3-8b", "--on", "h100-sxm", "--gpus", "8", "--tp", "3"], "no such plan"),
    ],
)
def test_wrong_questions_are_one_line(capsys, arguments, says):
    assert main(["optimize", *arguments]) == 2
    out, err = capsys.readouterr()
    assert out == "" and says in err and err.count("\n") == 1


def test_the_command_prints_a_page_json_and_an_explanation(capsys):
    base = ["optimize", "llama-3-8b", "--on", "h100-sxm", "--gpus", "8"]
    assert main(base) == 0
    page = capsys.readouterr().out
    assert "Profile, select, compose" in page or "at its best" in page
    assert main([*base, "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert {"schema_version", "assumptions", "warnings", "techniques", "roofs", "bound", "dam", "terms"} <= set(told)
    assert main([*base, "--explain", "optimizer"]) == 0
    assert "=" in capsys.readouterr().out
    assert main(["optimize", "--gpu-utilization", "45%", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["verdict"] == "data-bound"


def test_the_error_of_an_unknown_option_lists_the_nearest():
    with pytest.raises(IronlawError, match="nearest"):
        optimize("llama-3-8b", on="h100-sxm", gpuz=8)


def test_flash_attention_is_tried_where_it_is_off_and_only_there():
    """A plan stores the option as "on" or "off"; an estimate stores it as a bool."""
    plan = {"on": "h100-sxm", "gpus": 8, "tp": 1, "pp": 1, "most": 1}
    off = optimize("llama-3-8b", flash_attention="off", **plan)
    on = optimize("llama-3-8b", **plan)
    names = [[row["technique"] for row in answer.tables[0].rows] for answer in (off, on)]
    assert "flash attention" in names[0][:3]
    assert "flash attention" not in names[1]


def test_a_loader_without_prefetch_is_serial_and_times_of_a_batch_are_taken():
    """60 ms are fetched and copied for every batch, and 100 ms prepared for each of its 8 samples."""
    ask = {"on": "h100-sxm", "gpus": 8, "tp": 1, "pp": 1, "global_batch_size": 64, "most": 1}
    loader = {"prefetch_factor": 0, "transform_time": "100ms", "fetch_time": "50ms", "transfer_time": "10ms", "workers": 1}
    found = optimize("llama-3-8b", **ask, **loader)
    assert found["base"]["waiting"] == pytest.approx(0.86, rel=1e-9)
    row = next(t for t in found["techniques"] if t["technique"] == "prefetch of batches")
    assert row["change"] == {"stages": "overlapped", "prefetch_factor": 2.0}
    assert row["seconds"] == pytest.approx(found["base"]["seconds"] - 0.86, rel=1e-9)
