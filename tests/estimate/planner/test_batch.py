"""The batch of a question that gives none."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ironlaw import estimate
from ironlaw.estimate.planner.batch import pick_batch

RATES = st.lists(st.floats(0.5, 2.0) | st.just(0.0), min_size=1, max_size=6)


@given(RATES)
def test_the_picked_batch_is_the_first_that_loses_little(rates):
    batches = [float(at) for at in range(len(rates))]
    picked = pick_batch(batches, lambda batch, least: rates[int(batch)] if rates[int(batch)] >= least else 0.0)
    near_enough = [batch for batch in batches if rates[int(batch)] >= 0.98 * max(rates)]
    assert picked == (near_enough[0] if max(rates) > 0.0 else 0.0)


@pytest.mark.parametrize(
    ("model", "gpus", "sequence"),
    [("llama-3-8b", 24, 131072), ("llama-3-8b", 96, 65536), ("llama-3-70b", 200, 131072), ("gpt-3-175b", 240, 131072)],
)
def test_no_batch_within_a_quarter_gives_two_per_cent_more_tokens_per_second(model, gpus, sequence):
    question = {"model": model, "on": "h100-sxm", "gpus": gpus, "seq_len": sequence, "cp": 8}
    picked = estimate(**question)
    usual = 4 * 1024**2 // sequence
    every = np.arange(np.ceil(0.75 * usual), np.floor(1.25 * usual) + 1.0)
    rates = estimate(**question, global_batch_size=every)
    best = np.nanmax(np.where(rates.fits, rates.tokens_per_second, np.nan))
    assert picked.fits[0] and picked.tokens_per_second[0] >= 0.98 * best


def test_a_batch_that_cannot_be_split_is_given_one_sequence_for_each_rank():
    assert estimate("llama-3-8b", on="h100-sxm", gpus=997).groups[0].plan.global_batch_size[0] == 997.0


def test_a_given_batch_that_is_divided_badly_gets_one_line_that_names_a_better_one():
    question = {"model": "llama-3-70b", "on": "h100-sxm", "gpus": 768}
    lines = [line for line in estimate(**question, global_batch_size=516).row(0)["warnings"] if "divided badly" in line]
    assert len(lines) == 1
    better = float(lines[0].split(": ")[1].split(" gives")[0])
    bad, good = (estimate(**question, global_batch_size=batch).tokens_per_second[0] for batch in (516, better))
    assert 464.4 <= better <= 567.6 and good > bad / 0.9
    assert f"{good / bad - 1.0:.0%} more" in lines[0]


@pytest.mark.parametrize("batch", [512, 768, 516 - 4])
def test_a_batch_that_plans_divide_well_gets_no_such_line(batch):
    answer = estimate("llama-3-70b", on="h100-sxm", gpus=768, global_batch_size=batch)
    assert not [line for line in answer.row(0)["warnings"] if "divided badly" in line]
