"""``ironlaw lessons``: techniques tried by estimates, combined and classified; refusals, the command."""

from __future__ import annotations

import json

import pytest

import ironlaw
import paths
from ironlaw import units
from ironlaw.cli.main import main
from ironlaw.errors import IronlawError
from ironlaw.questions.lessons import lessons
from ironlaw.questions.lessons.advice import CLASSES
from ironlaw.questions.lessons.rules_of_thumb import classify_bottleneck, recommend_scale
from ironlaw.questions.lessons.techniques import TECHNIQUES
from ironlaw.terms import BOUNDS

CASES = {c["id"]: c for c in json.loads((paths.DATA / "oracle_lessons.json").read_text(encoding="utf-8"))}
ASK = {"on": "h100-sxm", "gpus": 64, "tp": 8, "pp": 2, "vpp": 1, "recompute": "full", "global_batch_size": 256, "micro_batch_size": 1}


@pytest.fixture(scope="module")
def answer():
    return lessons("llama-3-70b", **ASK, zero=1)


def test_the_rule_of_thumb_on_scale():
    case = CASES["S003-67"]
    read = [recommend_scale(units.parse_count(model, "model"), units.parse(data, "B", "data")) for model, data in case["inputs"]["cases"]]
    assert read == case["expected"]["answers"]


def test_the_flowchart_of_utilisation():
    case = CASES["S003-68"]
    read = [classify_bottleneck({"gpu_utilization": busy / 100.0, "memory_used": used}) for busy, used in case["inputs"]["cases"]]
    assert read == case["expected"]["answers"]


def test_every_roof_has_a_class_and_every_technique_a_term_of_the_iron_law():
    assert set(CLASSES) == set(BOUNDS)
    for technique in TECHNIQUES:
        assert technique.moves in ("operations", "peak", "efficiency", "memory") and technique.axis in ("algorithm", "machine", "data")
        assert set(technique.roofs) <= set(BOUNDS)
    assert len({t.name for t in TECHNIQUES}) == len(TECHNIQUES)


def test_a_gain_is_that_of_the_estimate_of_the_changed_plan(answer):
    row = next(t for t in answer["techniques"] if t["technique"] == "no recomputation")
    rates = [ironlaw.estimate("llama-3-70b", **{**ASK, "recompute": how}, zero=1).tokens_per_second[0] for how in ("full", "none")]
    assert row["gain"] == pytest.approx(rates[1] / rates[0] - 1.0, rel=1e-12)


def test_gains_stay_below_amdahls_bound(answer):
    for row in answer["techniques"]:
        if row["gain"] is not None and row["at_best"] is not None and row["moves"] == "efficiency":
            assert row["gain"] <= row["at_best"] + 1e-9, row


def test_the_total_gain_is_the_product_of_the_gains_of_the_steps(answer):
    together = 1.0
    for step in answer["composed"]:
        together *= 1.0 + step["gain"]
        assert step["together"] == pytest.approx(together - 1.0, rel=1e-9)
    assert [s["step"] for s in answer["composed"]] == list(range(1, len(answer["composed"]) + 1))
    assert answer["composed"][0]["technique"] == next(t["technique"] for t in answer["techniques"] if t["fits"])


def test_techniques_that_set_the_same_option_conflict(answer):
    rows = {t["technique"]: t for t in answer["techniques"]}
    assert "selective recomputation" in rows["no recomputation"]["clashes"]
    assert "no recomputation" in rows["selective recomputation"]["clashes"]


def test_seven_billion_on_24_gb():
    """Weights, gradients and states of 7B parameters are 112 GB: the headline names what alone makes them fit in 24 GB, if anything."""
    answer = lessons("llama-2-7b", on="rtx-4090", gpus=1, recompute="none", micro_batch_size=1, offload="none")
    assert "does not fit" in answer.headline[1]
    freed = {t["technique"]: t["memory"] for t in answer["techniques"] if t["memory"] is not None}
    assert freed["optimizer in the host"] < freed["8-bit Adam"] < 0


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
        (["--table", "recipes"], "--table"),
        (["llama-3-8b", "--on", "h100-sxm", "--gpus", "8", "--tp", "3"], "no such plan"),
    ],
)
def test_wrong_questions_are_one_line(capsys, arguments, says):
    assert main(["lessons", *arguments]) == 2
    out, err = capsys.readouterr()
    assert out == "" and says in err and err.count("\n") == 1


def test_the_command_prints_a_page_json_and_an_explanation(capsys):
    base = ["lessons", "llama-3-8b", "--on", "h100-sxm", "--gpus", "8"]
    assert main(base) == 0
    page = capsys.readouterr().out
    assert "Profile, select, compose" in page or "at its best" in page
    assert main([*base, "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert {"schema_version", "assumptions", "warnings", "techniques", "roofs", "bound", "dam", "terms"} <= set(told)
    assert main([*base, "--explain", "optimizer"]) == 0
    assert "=" in capsys.readouterr().out
    for table in ("optimizers", "checkpoints"):
        assert main(["lessons", "gpt-3-175b", "--table", table, "--json"]) == 0
        assert json.loads(capsys.readouterr().out)[table]
    assert main(["lessons", "--gpu-utilization", "45%", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["verdict"] == "data-bound"


def test_the_error_of_an_unknown_option_lists_the_nearest():
    with pytest.raises(IronlawError, match="nearest"):
        lessons("llama-3-8b", on="h100-sxm", gpu=8)


def test_flash_attention_is_tried_where_it_is_off_and_only_there():
    """A plan stores the option as "on" or "off"; an estimate stores it as a bool."""
    plan = {"on": "h100-sxm", "gpus": 8, "tp": 1, "pp": 1, "most": 1}
    off = lessons("llama-3-8b", flash_attention="off", **plan)
    on = lessons("llama-3-8b", **plan)
    names = [[row["technique"] for row in answer.tables[0].rows] for answer in (off, on)]
    assert names[0][0] == "flash attention"
    assert "flash attention" not in names[1]
