"""How likely each of some plans is the fastest, from predicted times and the spread of differences."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ironlaw.estimate.answer.bands import likely_fastest, likely_ratio, winner_bias

TIMES = st.lists(st.floats(0.1, 1000.0), min_size=1, max_size=6)
WIDTHS = st.floats(0.02, 1.0)


@given(TIMES, WIDTHS)
def test_probabilities_sum_to_one_and_follow_the_times(seconds, half):
    found = likely_fastest(seconds, half, 0.8)
    assert found.sum() == pytest.approx(1.0)
    assert np.all(np.diff(found[np.argsort(seconds, kind="stable")]) <= 1e-12)


@given(st.integers(1, 8), WIDTHS)
def test_equal_plans_are_equally_likely(number, half):
    assert likely_fastest([3.0] * number, half, 0.8) == pytest.approx([1.0 / number] * number)


@given(TIMES, WIDTHS, st.floats(1.01, 5.0))
def test_a_wider_spread_makes_the_fastest_less_sure(seconds, half, wider):
    assert likely_fastest(seconds, wider * half, 0.8).max() <= likely_fastest(seconds, half, 0.8).max() + 1e-12


@given(TIMES, WIDTHS, st.floats(0.1, 10.0))
def test_an_error_that_all_plans_share_changes_nothing(seconds, half, factor):
    assert likely_fastest(factor * np.array(seconds), half, 0.8) == pytest.approx(likely_fastest(seconds, half, 0.8))


@pytest.mark.parametrize("coverage", [0.5, 0.8, 0.9])
def test_the_difference_of_two_plans_is_within_the_half_width_with_the_coverage(coverage):
    """A plan predicted slower by the half-width is the faster one in half of the cases outside the interval."""
    likely = likely_fastest([1.0, np.exp(0.2)], 0.2, coverage)
    assert likely[1] == pytest.approx((1.0 - coverage) / 2.0)


def test_the_formula_is_the_share_of_draws_in_which_a_plan_is_the_fastest():
    seconds, half, coverage = np.array([10.0, 10.2, 11.0]), 0.15, 0.8
    own = np.random.default_rng(1).gumbel(scale=half / (2.0 * np.arctanh(coverage)), size=(200_000, 3))
    drawn = np.bincount(np.argmin(np.log(seconds) - own, axis=1), minlength=3) / len(own)
    assert likely_fastest(seconds, half, coverage) == pytest.approx(drawn, abs=0.005)
    true = np.log(seconds) - own
    lost = np.mean(true[:, 0] - true.min(axis=1))  # by running the plan that is predicted fastest
    assert np.log1p(winner_bias(likely_fastest(seconds, half, coverage)[0], half, coverage)) == pytest.approx(lost, rel=0.02)


def test_a_corrected_gain_keeps_its_sign_and_equal_plans_stay_equal():
    assert likely_ratio(1.0, 0.77) == 1.0 and 1.0 < likely_ratio(1.2, 0.77) < 1.2 and 0.8 < likely_ratio(0.8, 0.77) < 1.0
    assert likely_ratio(1.2, 0.77) * likely_ratio(1 / 1.2, 0.77) == pytest.approx(1.0)
    assert winner_bias(1.0, 0.144, 0.8) == 0.0 < winner_bias(0.5, 0.144, 0.8) < winner_bias(0.1, 0.144, 0.8)
