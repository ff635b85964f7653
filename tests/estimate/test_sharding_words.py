"""ZeRO 3 can need more memory than ZeRO 2: the answer says so where it does."""

from __future__ import annotations

import pytest

import ironlaw
from ironlaw.cautions.record import sentences

PIPED = {"on": "mi300x", "gpus": 16, "tp": 1, "pp": 8, "vpp": 1, "cp": 1, "micro_batch_size": 1, "recompute": "none", "overlap": "none"}
WIDE = {"on": "h100-sxm", "gpus": 64, "tp": 1, "pp": 1, "vpp": 1, "cp": 1, "micro_batch_size": 1, "recompute": "full"}


def warned(model, asked, zero):
    row = ironlaw.estimate(model, **asked, zero=zero).row()
    return any("zero 3 gathers" in warning for warning in sentences(row["warnings"])), row["memory"]["needed"]


@pytest.mark.parametrize(("model", "asked"), [("gemma-2-9b", PIPED), ("llama-3-8b", WIDE), ("llama-3-70b", WIDE)])
def test_zero_3_says_where_it_gathers_more_than_it_saves(model, asked):
    (two, needs_two), (three, needs_three) = (warned(model, asked, zero) for zero in (2, 3))
    assert not two
    assert three == (needs_three > needs_two)


def test_both_cases_occur():
    assert warned("gemma-2-9b", PIPED, 3)[0] and not warned("llama-3-70b", WIDE, 3)[0]
