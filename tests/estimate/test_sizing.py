"""The search over numbers of accelerators: few are tried, and the answer is the fewest, or the most, in round numbers and then finer."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ironlaw.estimate.what_if.sizing import counts_below, fewest_count, most_count, round_counts


@given(st.floats(1.0, 131072.0), st.floats(1.0, 10000.0), st.floats(0.6, 1.0))
def test_the_fewest_is_enough_and_a_sixteenth_less_is_not(needed, least, power):
    """With a score that grows, if less than in proportion, the answer is at most an eighth of a gap above the least that is enough."""
    asked: list[float] = []

    def score(count):
        asked.append(count)
        return (count / needed) ** power

    tried = round_counts(8, least)
    found = fewest_count(tried, 8, score)
    if needed > tried[-1]:
        assert found is None
        return
    assert found is not None and found >= needed
    assert found == tried[0] or found <= 8.0 or found - needed <= max(found / 16.0, 8.0)
    assert len(asked) <= 16 and len(set(asked)) == len(asked)


def test_the_fewest_of_nothing_is_none():
    assert fewest_count([], 8, lambda count: count) is None
    assert fewest_count(round_counts(8), 8, lambda count: 0.0) is None


def test_a_search_ends_where_more_accelerators_are_slower():
    """A score that rises to 1,024 and falls behind never reaches 1: the search does not go to the end."""
    asked: list[float] = []

    def score(count):
        asked.append(count)
        return 0.9 * min(count / 1024.0, 1024.0 / count)

    assert fewest_count(round_counts(8), 8, score) is None
    assert len(asked) < 14


@given(st.floats(8.0, 1000.0), st.floats(2.1, 100.0))
def test_the_most_is_within_and_a_sixteenth_more_is_not(low, times):
    high = low * times
    found = most_count(round_counts(8), 8, lambda count: float(low <= count <= high))
    assert found is not None and low <= found <= high
    assert high - found <= max(found / 8.0, 8.0)


def test_counts_below_a_limit_of_less_than_a_node_are_parts_of_it():
    assert counts_below(5, 8, [1.0, 2.0, 4.0]) == [4.0]


@pytest.mark.parametrize(("unit", "first"), [(24.0, 24.0), (48.0, 48.0), (5.0, 40.0)])
def test_round_counts_are_multiples_of_what_the_given_axes_take(unit, first):
    counts = round_counts(8, unit=unit)
    assert counts[0] == first
    assert all(count % unit == 0.0 for count in counts)
