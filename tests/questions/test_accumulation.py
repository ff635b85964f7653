"""``sweep --accumulate`` by estimate: memory of one micro-batch, time of k and one synchronisation, money that stays."""

from __future__ import annotations

import math
from itertools import pairwise

import pytest

from ironlaw import sweep
from ironlaw.cli.main import main
from ironlaw.errors import PlanError, UnknownNameError
from ironlaw.estimate.answer.estimate import estimate
from ironlaw.law import batches, cost

PLAN = {"micro_batch_size": 1, "tp": 1, "pp": 1, "zero": 1, "framework": "megatron", "recompute": "none"}
ASKED = {"gpus": 64, "tokens": "1T", "seq_len": 4096, "accumulate": "1,2,4,8", **PLAN}


@pytest.fixture(scope="module")
def found():
    return sweep("llama-3-8b", on="h100-sxm", **ASKED)


def test_the_case_of_the_training_chapter():
    """Worked case S003-50: 8 accelerators with 4 micro-batches for 32 with one, 8 % slower: no money is saved."""
    assert float(batches.accumulated_batch(4, 16, 8)) == float(batches.accumulated_batch(1, 16, 32)) == 512
    assert float(batches.synchronisation_saved(4)) == 0.75
    hours = 14 * 24
    few = float(cost.rental(8, 1.08 * 4 * hours * 3600, 16 / 3600))
    many = float(cost.rental(32, hours * 3600, 16 / 3600))
    assert (few, many) == (pytest.approx(185794.56), pytest.approx(172032.0))


def test_a_row_is_the_estimate_of_its_batch(found):
    for row in found["rows"]:
        k = row["accumulate"]
        assert row["batch"] == k * 64 * 4096
        alone = estimate("llama-3-8b", on="h100-sxm", gpus=64, seq_len=4096, tokens=1e12, global_batch_size=64 * k, **PLAN).row(0)
        assert alone["plan"]["num_microbatches"] == k
        assert (row["step"], row["memory"], row["usd"]) == (alone["step"]["seconds"], alone["memory"]["device"], alone["run"]["usd"])
        assert row["steps"] == math.ceil(1e12 / row["batch"])


def test_memory_is_of_one_micro_batch_and_time_of_all(found):
    rows = found["rows"]
    assert max(row["memory"] for row in rows) < 1.05 * min(row["memory"] for row in rows)
    assert rows[0]["at_once"] is None
    growth = [b["at_once"] - a["at_once"] for a, b in pairwise(rows[1:])]
    assert growth[1] == pytest.approx(2 * growth[0], rel=0.02)  # activations of the whole batch, in proportion to it
    for row in rows:
        assert row["step"] == pytest.approx(float(batches.accumulated_step(row["accumulate"], row["micro"], row["once"])))
        assert row["simple"] == pytest.approx(row["accumulate"] * row["micro"] + (row["accumulate"] - 1) * row["once"])
    assert [row["saved"] for row in rows] == [0.0, 0.5, 0.75, 0.875]
    assert all(a["tokens_per_second"] < b["tokens_per_second"] for a, b in pairwise(rows))
    assert all(a["usd"] > b["usd"] for a, b in pairwise(rows))


def test_the_same_batch_on_fewer_accelerators_takes_as_many_hours(found):
    rows = found["fewer"]
    assert [(row["accumulate"], row["gpus"]) for row in rows] == [(8, 64), (4, 128), (2, 256), (1, 512)]
    assert len({row["batch"] for row in rows}) == 1
    assert rows[0]["step"] == found["rows"][-1]["step"]
    for row in rows:
        assert row["gpu_seconds"] == pytest.approx(rows[0]["gpu_seconds"], rel=0.2)
    assert rows[0]["seconds"] > 6 * rows[-1]["seconds"]


def test_a_pipeline_fills_with_micro_batches():
    """With four stages one micro-batch leaves three of four idle; with many the bubble is small."""
    plan = {"micro_batch_size": 1, "tp": 2, "pp": 4, "vpp": 1}
    one, many = sweep("llama-3-8b", on="h100-sxm", gpus=64, tokens="1T", seq_len=4096, accumulate="1,64", **plan)["rows"]
    assert one["tokens_per_second"] < 0.3 * many["tokens_per_second"]


def test_models_and_counts_are_lists():
    found = sweep("gpt2-xl,llama-3-8b", on="h100-sxm", gpus="32,64", tokens="20x", accumulate="2,4")
    assert [(row["model"], row["gpus"], row["accumulate"]) for row in found["rows"]] == [
        (model, gpus, k) for model in ("gpt-2-xl", "llama-3-8b") for gpus in (32, 64) for k in (2, 4)
    ]


def test_a_wrong_plan_or_name_is_refused():
    with pytest.raises(PlanError, match="no such plan"):
        sweep("llama-3-8b", on="h100-sxm", gpus=64, tokens="1T", accumulate="1,2", tp=3)
    with pytest.raises(UnknownNameError, match="llama-9"):
        sweep("llama-9", on="h100-sxm", gpus=64, tokens="1T", accumulate="1,2")


def test_the_command(capsys):
    asked = "sweep gpt2-xl --on v100-sxm-32gb --gpus 8 --tokens 10B --micro-batch-size 1 --tp 1 --pp 1 --accumulate 1,4"
    assert main(asked.split()) == 0
    out = capsys.readouterr().out
    assert "75.0% of the synchronisations are saved" in out and "accumulation saves accelerators and" in out
    assert main([*asked.split(), "--explain", "step of 4 micro-batches"]) == 0
    assert "num_microbatches micro_time + sync_time" in capsys.readouterr().out
