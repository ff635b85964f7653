"""What one run of a publisher tells of its others: learned with publishers left out."""

from __future__ import annotations

import json

import numpy as np
import pytest

from ironlaw.estimate.answer.bands import level_law
from ironlaw.validate.fit import RECORD
from ironlaw.validate.own_runs import NEAR, REACHES, SHARES, Pairs, judge, learn, pairs_of
from made_runs import ready


def made(level, own, families=6, runs=12, seed=2):
    """Publishers whose errors are a level of their own, and noise of each run."""
    rng = np.random.default_rng(seed)
    found = []
    for k in range(families):
        log = level * rng.normal() + own * rng.normal(size=runs)
        one, other = np.nonzero(~np.eye(runs, dtype=bool))
        found.append(Pairs(f"f{k}", np.zeros(one.size), log[one], log[other], np.full(one.size, 0.3)))
    return found


def test_errors_that_are_all_level_are_corrected_and_errors_that_are_all_spread_are_not():
    level, spread = made(0.2, 0.005), made(0.0, 0.2)
    assert learn(level)[0] == max(SHARES)
    assert learn(spread)[0] == min(SHARES)
    found = judge(level)["like"]
    assert found["mean_after"] < 0.5 * found["mean_before"]


def test_what_reaches_far_is_told_from_what_does_not():
    rng = np.random.default_rng(4)
    gap = np.concatenate([np.zeros(200), np.full(200, 1.0)])
    own = rng.normal(size=400)
    near_only = np.where(gap == 0.0, own, rng.normal(size=400))
    assert learn([Pairs("f", gap, own, near_only, np.ones(400))])[1] < 1.0
    assert learn([Pairs("f", gap, own, own, np.ones(400))])[1] == max(REACHES)


def test_a_corrected_band_is_narrower_and_the_law_is_learned_without_the_publisher():
    pairs = made(0.2, 0.02)
    for row in judge(pairs)["families"]:
        assert (row["share"], row["reach"]) == learn(pairs, row["family"])
        assert row["like"]["narrower"] == pytest.approx(np.sqrt(1.0 - row["share"] ** 2))


def test_pairs_are_of_one_publisher_and_know_their_distance():
    p = ready({"family": "a"}, {"family": "a", "gpus": "16", "global_batch_seqs": "512"}, {"family": "b"})
    predicted = p.measured / np.array([1.1, 1.2, 1.3])
    (pairs,) = pairs_of(p, predicted, np.full(3, 0.2))
    assert pairs.family == "a"
    np.testing.assert_allclose(pairs.gap, 1.0 / 8.0)
    assert sorted(np.exp(pairs.own)) == pytest.approx([1.1, 1.2])
    np.testing.assert_allclose(np.exp(pairs.own + pairs.other), 1.32)
    assert pairs.near().gap.size == (2 if NEAR >= 1.0 / 8.0 else 0)


def test_one_run_takes_a_good_part_of_the_error_of_its_like_on_published_runs():
    """The figures of the page, made by the fit; the law that ships is inside what was tried."""
    record = json.loads(RECORD.read_text(encoding="utf-8"))["own_runs"]
    like = record["record"]["like"]
    assert like["mean_after"] < 0.6 * like["mean_before"]
    assert 0.7 <= like["coverage"] <= 0.9
    assert record["generic"]["like"]["mean_after"] < record["generic"]["like"]["mean_before"]
    share, reach = level_law()
    assert min(SHARES) < share <= max(SHARES)
    assert min(REACHES) < reach < max(REACHES)
