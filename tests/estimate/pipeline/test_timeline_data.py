"""The passes of a step as data: what a drawing of a pipeline is made of."""

from __future__ import annotations

import json
from collections import defaultdict

import pytest

import ironlaw
from ironlaw.estimate.step import timeline as module

PLANS = {
    "1f1b": {"pp": 4, "vpp": 1},
    "interleaved": {"pp": 4, "vpp": 4},
    "zero-bubble": {"pp": 4, "vpp": 1, "schedule": "zero-bubble"},
    "one stage": {"pp": 1, "vpp": 1},
}


@pytest.fixture(scope="module", params=PLANS)
def found(request):
    estimate = ironlaw.estimate(
        "llama-3-8b", on="h100-sxm", gpus=32, tp=2, global_batch_size=64, micro_batch_size=1, zero=1, recompute="none",
        **PLANS[request.param],
    )  # fmt: skip
    return estimate, estimate.timeline()


def test_passes_of_a_stage_do_not_overlap_and_add_up(found):
    data = found[1]
    of_stage = defaultdict(list)
    events = data["events"]
    for stage, start, end in zip(events["stage"], events["start"], events["end"], strict=True):
        of_stage[stage].append((start, end))
    assert sorted(of_stage) == list(range(data["stages"])) and data["left_out"] is None
    for stage, passes in of_stage.items():
        assert all(end <= start + 1e-12 for (_, end), (start, _) in zip(sorted(passes), sorted(passes)[1:], strict=False))
        assert data["seconds"] - sum(end - start for start, end in passes) == pytest.approx(data["waits"][stage], abs=1e-9)


def test_every_chunk_has_its_passes(found):
    estimate, data = found
    assert len(data["passes"]) == data["stages"] * data["chunks"]
    count = len(data["events"]["start"])
    assert count == data["micro_batches"] * sum(len(row["seconds"]) for row in data["passes"])
    assert data["micro_batches"] == estimate.row(0)["plan"]["num_microbatches"]


def test_the_step_is_near_that_of_the_estimate(found):
    """The passes are the micro-batches and the bubble of the estimate: with all else of a step they are its whole."""
    estimate, data = found
    tree = estimate.row(0)["step"]["tree"]
    passes = sum(part["total"] for part in tree["parts"] if part["name"] in ("micro-batches", "pipeline bubble"))
    assert data["seconds"] == pytest.approx(passes, rel=0.02)


def test_the_middle_of_a_long_step_is_left_out(found, monkeypatch):
    estimate, whole = found
    monkeypatch.setattr(module, "EVENTS", 6)
    data = estimate.timeline()
    assert len(data["events"]["start"]) == 6 and data["left_out"]["passes"] == len(whole["events"]["start"]) - 6
    assert data["events"]["start"][:3] == whole["events"]["start"][:3] and data["events"]["end"][-3:] == whole["events"]["end"][-3:]
    assert data["left_out"]["start"] == whole["events"]["start"][3] and data["seconds"] == whole["seconds"]


def test_the_command_has_it_beside_the_answer(ask):
    words = ["estimate", "llama-3-8b", "--on", "h100-sxm", "--gpus", "8", "--tp", "2", "--pp", "2", "--timeline"]
    data = json.loads(ask(*words, "--json")[1])
    assert data["timeline"]["stages"] == 2 and data["plan"]["pp"] == 2
    status, _, err = ask(*words)
    assert status == 2 and "--json" in err
    assert json.loads(ask(*words[:-1], "--tp", "3", "--timeline", "--json")[1])["timeline"] is None
