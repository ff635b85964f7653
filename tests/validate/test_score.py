"""Errors, bands and baselines, on figures that are known."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from ironlaw.validate import session
from ironlaw.validate.fill import Apart
from ironlaw.validate.predict import times
from ironlaw.validate.score import baseline_data, by_device, by_level, far_apart, headline, interval_scores, score
from made_runs import ready, synthetic


def test_no_published_run_is_far_from_its_prediction():
    """But for adapters of experts that a stack runs one expert at a time, a loop that is not modelled."""
    scored = session.validate().held_out
    looped = {run.id for run in scored.prepared.runs if Apart.FALLBACK in run.apart}
    assert [line for line in far_apart(scored) if not any(f"({name})" in line for name in looped)] == []


def test_longer_measurements_move_the_bias_and_nothing_else():
    p = ready(*({"step_time_s": str(3.0 + 0.2 * i)} for i in range(5)))
    once, twice = (score(q, times(q), []) for q in (p, replace(p, measured=2.0 * p.measured)))
    np.testing.assert_array_equal(once.predicted, twice.predicted)
    assert 1.0 + headline(twice)["bias"] == pytest.approx((1.0 + headline(once)["bias"]) / 2.0)


def test_baselines_use_only_other_families():
    """Family a runs at MFU 0.5, b at 0.25, on the same device; c is alone on its device and takes the median of all others."""
    p = synthetic([2.0, 4.0, 4.0, 8.0], [1.0, 2.0, 1.0, 4.0], ["a", "a", "b", "c"], ["x", "x", "x", "y"])
    np.testing.assert_allclose(by_device(p), [1 / 0.25, 2 / 0.25, 1 / 0.5, 4 / 0.5])
    np.testing.assert_allclose(by_level(p), p.measured)
    told = baseline_data(score(p, p.measured, []))["one efficiency a device"]
    assert told["families"] == {"a": pytest.approx(1.0), "b": pytest.approx(0.5), "c": pytest.approx(0.0)}
    assert told["family_median_abs_error"] == pytest.approx(0.5)


def test_baselines_of_one_family_alone_have_nothing_to_learn_from():
    p = synthetic([2.0], [1.0], ["a"])
    assert np.isnan(by_device(p)[0])
    assert baseline_data(score(p, p.measured, []))["one efficiency a device"]["family_median_abs_error"] is None


def test_rows_apart_do_not_count_in_the_headline():
    p = synthetic([1.0, 1.0, 1.0], [0.5] * 3, ["a", "a", "b"], apart=[(), (Apart.ADAPTERS,), ()])
    told = headline(score(p, np.array([1.1, 9.0, 0.8]), []))
    assert told["pooled_median_abs_error"] == pytest.approx(0.15)
    assert told["family_median_abs_error"] == pytest.approx(0.15)
    assert told["bias"] == pytest.approx(-0.05)


def test_interval_scores_by_hand():
    """A band of half-width 0.1 that misses by 0.05 in log, at 80 %: 0.2 + 2/0.2 0.05; one that holds costs its width."""
    error = np.expm1([0.15, -0.15, 0.05])
    np.testing.assert_allclose(interval_scores(error, np.full(3, 0.1), 0.2), [0.7, 0.7, 0.2])
