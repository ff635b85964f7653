"""``ironlaw diff``: what changed between two answers, sums that close, causes, and files that are not answers."""

from __future__ import annotations

import copy
import json
import math
import random
from pathlib import Path

import pytest

from ironlaw import diff
from ironlaw.catalog import load
from ironlaw.estimate.answer.estimate import answer
from ironlaw.question.read import read_options
from ironlaw.questions.diff.terms import contributions

QUESTION = {"model": "llama-3-8b", "on": "h100-sxm", "gpus": 8, "tp": 2, "pp": 1, "zero": 1, "micro_batch_size": 1, "recompute": "none"}


@pytest.fixture
def saved(tmp_path):
    """Write the answer to some options and return its path; ``edit`` changes the data."""

    def save(name, edit=None, catalog=(), **options):
        data = answer(read_options({**QUESTION, **options}), tuple(map(str, catalog))).row(0)
        if edit:
            edit(data)
        path = tmp_path / f"{name}.json"
        path.write_text(json.dumps(data))
        return path

    return save


def test_the_same_answer_has_no_difference(saved, ask):
    a = saved("a")
    status, out, _ = ask("diff", a, saved("b"))
    assert status == 0 and "The answers are the same." in out
    assert json.loads(ask("diff", a, a, "--json")[1])["equal"] is True


def test_recomputation_alone_saves_the_activations_and_no_more(saved):
    """Checkpoints of 32 layers instead of what they save: 17 GiB of 17 GiB of activations less one layer."""
    found = diff(str(saved("a")), str(saved("b", **dict.fromkeys(("dp_shard",), 4), recompute="full", micro_batch_size=1)))
    assert found["results"][2]["bytes"] / 2**30 == pytest.approx(-17.6, abs=0.1)  # worked out in tests/estimate/test_held.py
    assert [row["option"] for row in found["inputs"]] == ["recompute"]
    assert found["plan"] == [] and found["catalogue"] == [] and found["constants"] == []
    assert found["time"][0]["term"] == "layers / recompute"
    (cause,) = found["causes"]
    assert cause["change"] == "recompute none to full" and cause["bytes"] == found["results"][2]["bytes"]


def test_terms_sum_to_the_difference_and_causes_too(saved):
    draw = random.Random(5)
    for i in range(8):
        options = {
            "recompute": draw.choice(["none", "full", "every:2", "selective"]), "tp": draw.choice([1, 2, 4]),
            "precision": draw.choice(["bf16", "fp8"]),
            "seq_len": draw.choice([2048, 4096]), "optimizer": draw.choice(["adamw", "adamw-bf16"]), "gpus": draw.choice([8, 16]),
        }  # fmt: skip
        a, b = saved(f"a{i}"), saved(f"b{i}", **options)
        found = diff(str(a), str(b))
        before, after = (json.loads(p.read_text()) for p in (a, b))
        for name, key, total in (("time", "step", "seconds"), ("memory", "memory", "device")):
            assert found[name] or before[key][total] == after[key][total]
            *rows, whole = found[name] or [{"difference": 0.0}]
            assert math.fsum(row["difference"] for row in rows) == pytest.approx(whole["difference"], abs=1e-12 * before[key][total])
            assert whole["difference"] == after[key][total] - before[key][total]
            sizes = [abs(row["difference"]) for row in rows[:-1]]
            assert sizes == sorted(sizes, reverse=True)
        for key, total in (("seconds", found["results"][2]["seconds"]), ("bytes", found["results"][2]["bytes"])):
            assert sum(row[key] for row in found["causes"]) == pytest.approx(total, rel=1e-9, abs=1e-6)


def test_contributions_sum_to_the_total(saved):
    for options in ({}, {"model": "mixtral-8x7b", "gpus": 64, "tp": 2, "ep": 8}, {"pp": 4, "gpus": 64, "recompute": "full"}):
        data = json.loads(saved("x", **options).read_text())
        for tree in (data["step"]["tree"], data["memory"]["tree"]):
            assert math.fsum(contributions(tree).values()) == pytest.approx(tree["value"], rel=1e-12)


def test_a_model_in_a_file_is_found_beside_the_answer(saved, tmp_path, monkeypatch):
    config = {"model_type": "llama", "hidden_size": 1024, "num_hidden_layers": 8, "num_attention_heads": 16, "intermediate_size": 4096,
              "vocab_size": 32000, "max_position_embeddings": 2048, "num_key_value_heads": 16}  # fmt: skip
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "config.json").write_text(json.dumps(config))
    monkeypatch.chdir(tmp_path)
    a, b = saved("a", model="mine/config.json"), saved("b", model="mine/config.json", recompute="full")
    monkeypatch.chdir(Path(load.__file__).parent)
    assert [row["change"] for row in diff(str(a), str(b))["causes"]] == ["recompute none to full"]


def test_changes_that_cannot_be_made_alone_are_made_together(saved):
    found = diff(str(saved("a")), str(saved("b", tp=4, micro_batch_size=1)))
    (row,) = [row for row in found["causes"] if row["change"].startswith("tp ")]
    assert row["change"] == "tp 2 to 4, dp_shard 4 to 2"


def test_a_value_of_the_catalogue_is_named_with_its_source(saved, tmp_path, ask):
    mine = tmp_path / "mine" / "accelerators"
    mine.mkdir(parents=True)
    text = (Path(load.__file__).parent / "data" / "accelerators" / "h100-sxm.toml").read_text()
    assert "3.35 TB/s" in text
    (mine / "h100-sxm.toml").write_text(text.replace("3.35 TB/s", "3.00 TB/s"))
    a, b = saved("a"), saved("b", catalog=[mine.parent])
    found = diff(str(a), str(b))
    (row,) = found["catalogue"]
    assert row["record"] == "accelerators/h100-sxm" and row["a"].startswith("3.35 TB/s [") and row["b"].startswith("3.00 TB/s [")
    (cause,) = found["causes"]
    assert cause["change"] == "catalogue of b.json, against those installed"
    assert cause["seconds"] == found["results"][2]["seconds"] > 0
    status, out, _ = ask("diff", a, b, "--catalog", mine.parent)
    assert status == 1 and "catalogue of a.json" in out


def test_constants_of_an_earlier_set_are_named_and_move_the_step(saved):
    found = diff(str(saved("a")), str(saved("b", calibration_version="2026.11-rc1")))
    assert {row["record"] for row in found["constants"]} >= {"systems/default", "calibration/h100-sxm"}
    assert found["catalogue"] == []
    (cause,) = found["causes"]
    assert cause["change"] == f"calibration_version {load.constants_version()} to 2026.11-rc1"
    assert cause["seconds"] == found["results"][2]["seconds"] != 0.0


def test_an_answer_of_another_version_says_so(saved):
    def older(data):
        data["tool_version"] = "0.0.9"
        node = data["step"]["tree"]
        data["step"]["seconds"] += 1.0
        node["value"] += 1.0
        node["parts"][-1]["value"] += 1.0

    found = diff(str(saved("a", edit=older)), str(saved("b")))
    assert found["versions"] == [{"version": "tool_version", "a": "0.0.9", "b": json.loads(saved("c").read_text())["tool_version"]}]
    (cause,) = found["causes"]
    assert cause["change"] == "version of the tool of a.json, against those installed" and cause["seconds"] == pytest.approx(-1.0)
    assert found["time"][0]["term"] == "fixed per-step overhead"


def test_the_best_plan_of_a_search_is_read(saved, tmp_path, ask):
    path = tmp_path / "plan.json"
    path.write_text(ask("plan", "llama-3-8b", "--on", "h100-sxm", "--gpus", "8", "--json")[1])
    data = json.loads(path.read_text())
    assert data["plans"][0]["asked"]["given"] == {"model": "llama-3-8b", "on": "h100-sxm", "gpus": 8}
    found = diff(str(saved("a")), str(path))
    assert found["results"][1]["seconds"] == data["plans"][0]["step"]["seconds"]
    assert not any(row["change"].startswith("laws") for row in found["causes"])


def test_a_plan_that_cannot_run_has_no_causes(saved):
    found = diff(str(saved("a")), str(saved("b", gpus=12, tp=8)))
    assert found.warnings == ["no causes: one of the plans cannot run, so no change can be tried alone"]


def broken(change):
    data = answer(read_options(QUESTION)).row(0)
    change(data)
    return json.dumps(data)


def replaced(*path, value):
    def change(data):
        for key in path[:-1]:
            data = data[key]
        data[path[-1]] = copy.deepcopy(value)

    return lambda: broken(change)


@pytest.mark.parametrize(
    ("text", "status", "says"),
    [
        ("", 3, "not JSON"),
        ("{", 3, "not JSON"),
        ("[]", 3, "list of 0 answers"),
        ("7", 3, "not an answer"),
        ('{"a": NaN}', 3, "NaN is not a number in JSON"),
        ("[" * 100_000, 3, "deeper"),
        ("[" * 70 + "]" * 70, 3, "deeper than 64"),
        ('{"plans": []}', 3, "found no plan"),
        (replaced("schema_version", value=99), 3, "schema version 99"),
        (replaced("asked", value=None), 3, "asked is null"),
        (replaced("asked", "plan", value=[1]), 3, "plan is [1], not a table"),
        (replaced("asked", "plan", "pp", value="two"), 2, "pp in b.json"),
        (replaced("asked", "plan", "pp", value=[1, 2]), 3, "must be one value"),
        (replaced("asked", "plan", "pp", value=10**300), 2, "pp in b.json"),
        (replaced("asked", "given", "bananas", value=1), 2, "unknown option 'bananas' in b.json"),
        (replaced("asked", "given", "on", value="x" * 5000), 3, "more than 4096 characters"),
        (replaced("step", "seconds", value="fast"), 3, "step.seconds is 'fast', not a number"),
        (replaced("step", "tree", "parts", value=[{"name": 1}]), 3, "step.tree.parts[0].name is 1, not text"),
        (replaced("step", "tree", "times", value=10**400), 3, "larger than any float"),
        (replaced("step", value={"tree": {"name": "step", "value": 1.0, "parts": []}}), 3, "step.seconds is missing"),
        (replaced("step", "tree", "parts", value=[{"name": "x", "parts": []}]), 3, "step.tree.parts[0].value is missing"),
        (replaced("records", "systems/default", value=3), 3, "records.systems/default"),
        (replaced("run", value=[1]), 3, "run is [1]"),
        (replaced("throughput", "mfu", value="all"), 3, "throughput.mfu"),
        (replaced("assumptions", value=[1]), 3, "assumptions"),
    ],
)
def test_a_file_that_is_no_answer_is_one_line(saved, tmp_path, ask, text, status, says):
    path = tmp_path / "b.json"
    path.write_text(text if isinstance(text, str) else text())
    found, _, err = ask("diff", saved("a"), path)
    assert (found, len(err.strip().splitlines())) == (status, 1), err
    assert says in err


def test_a_number_of_three_hundred_digits_in_a_record_is_shown_short(saved, ask):
    huge = saved("b", edit=lambda data: data["records"]["systems/default"].update(pue=10**300))
    status, out, _ = ask("diff", saved("a"), huge)
    assert status == 1 and max(map(len, out.splitlines())) < 200


def test_missing_and_unreadable_files(saved, tmp_path, ask):
    a = saved("a")
    assert ask("diff")[0] == 2 and ask("diff", a)[0] == 2
    for path, says in ((tmp_path / "none.json", "cannot be read"), (tmp_path, "a folder, not a file")):
        status, _, err = ask("diff", a, path)
        assert status == 3 and says in err
    big = tmp_path / "big.json"
    with big.open("wb") as file:
        file.truncate((64 << 20) + 1)
    assert "too large" in ask("diff", a, big)[2]


@pytest.mark.parametrize("form", ["csv", "csv:time", "markdown", "json"])
def test_every_format_is_printed(saved, ask, form):
    status, out, err = ask("diff", saved("a"), saved("b", recompute="full"), "--format", form)
    assert status == 1 and out and not err
