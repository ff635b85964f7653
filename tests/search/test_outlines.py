"""Lists of plans without a breakdown have bands, bounds and memory, as the estimate of each plan says; sources stand once."""

from __future__ import annotations

import json

import pytest

from ironlaw.estimate.answer.as_data import row_data

ASKED = ("plan", "llama-3-8b", "--on", "h100-sxm", "--gpus", "8..16", "--global-batch-size", "64", "--fix", "tp=2,cp=1", "--tokens", "1T")


@pytest.fixture(scope="module")
def found():
    import ironlaw

    result = ironlaw.plan("llama-3-8b", on="h100-sxm", gpus="8..16", global_batch_size=64, fix="tp=2,cp=1", tokens="1T")
    return result, result.to_dict()


def test_a_front_has_the_bands_of_its_estimates(found):
    result, data = found
    choices = [choice for choice, _ in result.pareto()]
    for choice, entry in list(zip(choices, data["pareto"], strict=True))[:5]:
        ((estimate, row),) = result.explained([choice])
        whole = row_data(*estimate.place_of(row))
        assert entry["band"] == pytest.approx(whole["step"]["band"]) and entry["bound"] == whole["bound"]["by"]
        low, high, coverage = entry["bands"]["time"]
        assert low < entry["objectives"]["time"] < high and coverage == whole["step"]["band"][2]
        assert low / entry["objectives"]["time"] == pytest.approx(entry["bands"]["energy"][0] / entry["objectives"]["energy"])


def test_a_size_has_the_memory_and_the_band_of_its_best_plan(found):
    _, data = found
    best = data["plans"][0]
    row = next(row for row in data["sizes"]["by_gpus"] if row["gpus"] == best["plan"]["gpus"])
    assert row["step_seconds"] == best["step"]["seconds"] and row["device_bytes"] == best["memory"]["device"]
    assert row["band"] == pytest.approx(best["step"]["band"]) and row["bound"] == best["bound"]["by"]


def test_plans_name_sources_and_records_that_the_search_has_once(found):
    _, data = found
    for plan in data["plans"]:
        assert set(plan["records"]) <= data["records"].keys() and set(plan["sources"]) <= data["sources"].keys()
    assert set(data["records"]) == {name for plan in data["plans"] for name in plan["records"]}


def test_a_saved_plan_has_its_records_again(found, tmp_path):
    from ironlaw.estimate.answer.saved import read_answer

    _, data = found
    (tmp_path / "plans.json").write_text(json.dumps(data))
    read = read_answer(f"{tmp_path / 'plans.json'}#2").data
    assert read["records"] == {name: data["records"][name] for name in data["plans"][1]["records"]}


def test_a_run_has_bands_that_move_together():
    import ironlaw

    run = ironlaw.estimate("llama-3-8b", on="h100-sxm", gpus=8, tp=2, pp=1, tokens="1T").row(0)
    ratios = {round(band[0] / run["run"][name], 12) for name, band in run["run"]["bands"].items()}
    step = run["step"]
    assert ratios == {round(step["band"][0] / step["seconds"], 12)} and run["run"]["bands"]["usd"][2] == step["band"][2]


def test_counts_are_integers(found):
    data = found[1]
    counts = [data["question"]["global_batch_size"], data["sizes"]["by_gpus"][0]["gpus"], data["plans"][0]["parameters"]["trained"]]
    assert all(isinstance(count, int) for count in counts)
    assert isinstance(data["plans"][0]["step"]["tree"]["value"], float)
