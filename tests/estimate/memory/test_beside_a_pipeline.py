"""What FSDP2 keeps whole beside a pipeline: gathered weights, and gradients that are summed over micro-batches."""

from __future__ import annotations

import pytest

import ironlaw
from ironlaw.terms import scalar

STAGES, TP = 4, 2
PLAN = {"tp": TP, "vpp": 1, "micro_batch_size": 1, "recompute": "full", "zero": 3, "global_batch_size": 64, "seq_len": 2048}


def states(framework: str, **change):
    """Bytes of what a plan of Llama 3 70B on 64 accelerators allocates, by name."""
    answer = ironlaw.estimate("llama-3-70b", on="h100-sxm", gpus=64, framework=framework, **{**PLAN, "pp": STAGES, **change})
    group, place = answer.place_of(0)
    allocated = next(part for part in group.memory.tree.parts[0].parts if part.name == "allocated")
    return {part.name: scalar(part.value, place) for part in allocated.parts}


def test_weights_and_gradients_of_a_stage_are_whole_beside_a_pipeline():
    """Of the first stage, over tp 2: 20 layers of 855.65 M parameters and a table of 128,256 by 8,192; 2 and 4 bytes each."""
    parameters = (80 / STAGES * 855_654_400 + 128_256 * 8_192) / TP
    found = states("torchtitan")
    whole = found["gathered weights"] + found["gathered linear weights"]
    assert whole == pytest.approx(2.0 * parameters, rel=1e-4)  # norms are not split by tp
    assert found["gradients of micro-batches"] == pytest.approx(2.0 * whole, rel=1e-12)


@pytest.mark.parametrize("change", [{"pp": 1}, {"framework": "megatron", "zero": 1}])
def test_nothing_is_whole_without_a_pipeline_or_without_fsdp(change):
    found = states(**{"framework": "torchtitan", **change})
    assert found.get("gathered weights", 0.0) == found.get("gathered linear weights", 0.0) == 0.0
    assert found.get("gradients of micro-batches", 0.0) == 0.0


def test_one_micro_batch_reduces_its_gradients_at_once():
    found = states("torchtitan", global_batch_size=8)  # 8 data-parallel ranks
    assert found["gathered linear weights"] > 0.0 and found["gradients of micro-batches"] == 0.0
