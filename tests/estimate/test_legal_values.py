"""``legal_values`` of an answer: each value that it lists is legal when it is asked for, and each that it leaves out is not."""

from __future__ import annotations

import pytest

import ironlaw
from ironlaw.divisors import divisors
from ironlaw.errors import IronlawError

DENSE = {"model": "llama-3-8b", "on": "h100-sxm", "gpus": 32, "tp": 2, "pp": 2, "vpp": 2, "cp": 1, "zero": 1}
MIXTURE = {"model": "mixtral-8x7b", "on": "h100-sxm", "gpus": 16, "tp": 2, "pp": 2, "vpp": 1, "cp": 1, "ep": 4, "etp": 1, "zero": 1}
QUESTIONS = (
    {**DENSE, "global_batch_size": 64, "micro_batch_size": 1, "seq_len": 8192, "recompute": "none", "framework": "megatron"},
    {**MIXTURE, "global_batch_size": 32, "micro_batch_size": 1, "seq_len": 4096, "recompute": "full", "framework": "generic"},
    {
        **DENSE,
        "on": "a100-sxm-80gb",
        "tp": 1,
        "pp": 1,
        "vpp": 1,
        "zero": 3,
        "global_batch_size": 64,
        "micro_batch_size": 2,
        "framework": "fsdp",
    },
)
ALL = {
    "zero": (0, 1, 2, 3),
    "vpp": (1, 2, 3, 4, 8, 16, 32),
    "recompute": ("none", "selective", "full"),
    "schedule": ("1f1b", "gpipe", "interleaved", "zero-bubble", "dualpipe"),
    "cp_method": ("ring", "all-to-all", "all-gather"),
    "precision": ("bf16", "fp16", "fp32", "fp8", "mxfp8", "nvfp4"),
}


def is_legal(**asked) -> bool:
    """Whether a plan keeps all rules but that of memory; False where the question is refused."""
    try:
        return bool(ironlaw.estimate(**asked).legal[0])
    except IronlawError:
        return False


@pytest.mark.parametrize("asked", QUESTIONS, ids=lambda asked: asked["framework"])
def test_a_value_is_listed_where_asking_for_it_keeps_every_rule(asked):
    found = ironlaw.estimate(**asked).row(0)["legal_values"]
    ranks = asked["gpus"] // (asked["tp"] * asked["pp"] * asked["cp"])
    tried = {
        **ALL,
        **dict.fromkeys(("tp", "pp", "cp"), divisors(asked["gpus"])),
        "micro_batch_size": divisors(asked["global_batch_size"] // ranks),
    }
    if "ep" in asked:
        tried["ep"] = (1, 2, 4, 8)
    idle = {name for name, axis in (("schedule", "pp"), ("cp_method", "cp")) if asked[axis] == 1 and asked["framework"] == "fsdp"}
    for axis in tried.keys() - idle:  # a stack without pipelines does not look at the schedule
        for value in tried[axis]:
            other = {**asked, **({"vpp": 1} if (axis, value) == ("pp", 1) else {}), axis: value}
            assert (value in found[axis]) == is_legal(**other), (axis, value, found[axis])


def test_the_plan_itself_is_among_the_legal_values():
    row = ironlaw.estimate("deepseek-v2-lite", on="h100-sxm", gpus=16).row(0)
    for axis, values in row["legal_values"].items():
        if axis != "cp_method":
            assert row["plan"][axis] in values, axis


def test_an_illegal_axis_lists_what_it_could_be():
    row = ironlaw.estimate("mixtral-8x7b", on="h100-sxm", gpus=64, tp=7).row(0)
    assert row["legal_values"]["tp"] == [1, 2, 4, 8, 16, 32] and row["legal_values"]["pp"] == []
