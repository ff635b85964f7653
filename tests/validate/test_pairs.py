"""The pairs test: one column changes, measured and predicted ratio."""

from __future__ import annotations

import numpy as np
import pytest

from ironlaw.validate.pairs import changes, facts_of, list_changes, sum_by_column
from made_runs import mapped, ready


def test_pairs_differ_in_one_column_and_are_oriented_by_its_values():
    p = ready({}, {"micro_batch": "8"}, {"micro_batch": "8", "recompute": "full"}, {"family": "other", "micro_batch": "16"})
    measured = np.array([4.0, 3.0, 4.5, 1.0])
    p = p.__class__(**{**p.__dict__, "measured": measured})
    found = {(c.column, c.first, c.second): c for c in changes(p, np.array([4.0, 3.5, 4.5, 1.0]))}
    assert set(found) == {("micro_batch_size", "4", "8"), ("recompute", "full", "none")}
    change = found["micro_batch_size", "4", "8"].data()
    assert (change["measured_ratio"], change["predicted_ratio"]) == (pytest.approx(0.75), pytest.approx(0.875))
    assert change["error"] == pytest.approx(0.875 / 0.75 - 1.0)
    assert found["recompute", "full", "none"].data()["measured_ratio"] == pytest.approx(3.0 / 4.5)


def test_a_single_pair_is_not_listed_and_columns_sum_up():
    p = ready({}, {"micro_batch": "8"}, {"seq_len": "1024"}, {"seq_len": "1024", "micro_batch": "8"})
    p = p.__class__(**{**p.__dict__, "measured": np.array([4.0, 3.0, 2.0, 1.5])})
    rows = list_changes(p, np.array([4.0, 3.0, 2.0, 1.6]))
    assert {(row["column"], row["pairs"]) for row in rows} == {("micro_batch_size", 2), ("seq_len", 2)}
    for row in sum_by_column(rows):
        assert (row["families"], row["changes"], row["pairs"], row["right"]) == (1, 1, 2, 1)


def test_equal_runs_have_equal_facts():
    assert facts_of(mapped()) == facts_of(mapped())
    assert facts_of(mapped()) != facts_of(mapped(compile="y"))
