"""Constants fitted with and without a family, error bands, and the record that ships."""

from __future__ import annotations

import hashlib
import json

import numpy as np
import pytest

from ironlaw.catalog import load
from ironlaw.validate.fit import (
    POOLED,
    RECORD,
    Constant,
    Fit,
    Problem,
    constants,
    held_out_times,
    memory_coverage,
    memory_spreads,
    read_record,
    weighted_quantile,
    with_values,
)
from ironlaw.validate.peaks import RunMemory
from ironlaw.validate.predict import prepare, times
from ironlaw.validate.runs import RUNS, read_runs
from ironlaw.validate.session import lent_memories, spreads
from made_runs import ready, synthetic


def test_a_family_is_predicted_with_constants_fitted_without_it():
    p = ready({"family": "seen"}, {"family": "ours"})
    slow = {"compute_sustained": 0.5}
    fit = Fit({"compute_sustained": 0.9}, {"seen": slow})
    held = held_out_times(p, fit)
    assert held[0] == times(p, with_values(slow))[0]
    assert held[1] == times(p, with_values(fit.values))[1]
    assert held[0] > held[1]


def test_the_record_that_ships_covers_the_constants():
    fit, record = read_record()
    names = {c.name for c in constants()}
    assert set(fit.values) == names
    assert record["rows"] > 0
    for family, values in fit.held_out.items():
        assert set(values) == names, family
    for c in constants():
        assert c.low <= c.first <= c.high


def test_with_values_changes_those_alone():
    shipped, other = with_values({}), with_values({"tp_exposed": 0.5})
    assert other.tp_exposed.value == 0.5
    assert other.tp_exposed.unit == shipped.tp_exposed.unit
    assert repr(other.replace(tp_exposed=shipped.tp_exposed)) == repr(shipped)


def test_weighted_quantile_is_the_first_that_covers():
    values = np.array([0.3, 0.1, 0.2, 0.4])
    assert weighted_quantile(values, np.ones(4), 0.5) == 0.2
    assert weighted_quantile(values, np.ones(4), 0.75) == 0.3
    assert weighted_quantile(values, np.array([10.0, 1, 1, 1]), 0.8) == 0.3
    assert weighted_quantile(values, np.ones(4), 1.0) == 0.4
    assert weighted_quantile(np.array([7.0]), np.array([2.0]), 0.8) == 7.0


def problem(n=400):
    free = tuple(Constant(name, 1.0, 0.1, 10.0, 3.0, 1.0, "", "") for name in "ab")
    return Problem(synthetic([1.0] * n, [0.5] * n, [f"f{i % 4}" for i in range(n)]), free, {"c": 7.0})


def test_a_move_finds_the_constants_of_linear_residuals_despite_outliers():
    asked, rng = problem(), np.random.default_rng(3)
    jacobian, truth = rng.normal(size=(400, 2)), np.log([1.5, 0.7])
    residual = jacobian @ (asked.first - truth)
    mask = np.ones(400, dtype=bool)
    np.testing.assert_allclose(asked.move(asked.first, residual, jacobian, mask), truth, atol=1e-3)
    residual[::10] += 3.0  # one row in ten is wrong by a factor of twenty
    np.testing.assert_allclose(asked.move(asked.first, residual, jacobian, mask), truth, atol=0.02)
    assert asked.values(truth) == {"c": 7.0, "a": pytest.approx(1.5), "b": pytest.approx(0.7)}


def test_a_move_stays_within_bounds_and_looks_at_its_rows_only():
    asked = problem()
    sign = np.where(np.arange(400) % 8 < 4, 1.0, -1.0)  # both signs in every family: no level of a family explains them
    jacobian = np.stack([sign, np.zeros(400)], axis=1)
    half = np.arange(400) % 4 < 2
    residual = np.where(half, 2.4 * sign, 0.0)
    np.testing.assert_allclose(asked.move(asked.first, residual, jacobian, half), np.log([0.1, 1.0]), atol=1e-9)
    np.testing.assert_allclose(asked.move(asked.first, residual, jacobian, ~half), [0.0, 0.0], atol=1e-9)


def test_a_level_of_a_family_moves_no_constant_as_far_as_its_spread():
    """All rows of one family are 5 % too slow: most of it is taken as its level; without levels the constant would take all."""
    asked = problem()
    jacobian, one = np.tile([1.0, 0.0], (400, 1)), np.arange(400) % 4 == 0
    moved = asked.move(asked.first, np.where(one, 0.05, 0.0), jacobian, np.ones(400, dtype=bool))
    assert abs(moved[0]) < 0.05 / 3.0
    both = asked.move(asked.first, np.full(400, 0.05), jacobian, np.ones(400, dtype=bool))
    assert -0.0501 < both[0] < -0.04  # what all families share is the constant's


def test_rows_that_are_far_away_say_less():
    """Half of the rows fall with the constant by 1, the others disagree by a factor of two: the near rows decide."""
    asked, sign = problem(), np.where(np.arange(400) % 8 < 4, 1.0, -1.0)
    far = np.arange(400) % 5 == 0
    residual = np.where(far, 0.7 * sign, -0.1 * sign)
    moved = asked.move(asked.first, residual, np.stack([sign, np.zeros(400)], axis=1), np.ones(400, dtype=bool))
    assert moved[0] == pytest.approx(0.1, abs=0.02)


def test_a_family_weighs_the_root_of_its_rows():
    asked = problem()
    mask = np.arange(400) % 4 == 0
    mask[1] = True
    weights = asked.weights(mask)
    assert weights[0] * 10.0 == pytest.approx(weights[1])
    assert weights[2] == 0.0


def test_the_record_is_of_the_runs_that_ship():
    """A row changed without a new fit would be scored by constants that saw its old value."""
    record = json.loads(RECORD.read_text(encoding="utf-8"))
    assert record["runs_sha256"] == hashlib.sha256(RUNS.read_bytes()).hexdigest(), "run ironlaw validate fit"
    assert set(record["constants"]) == {c.name for c in constants()}


# --- memory


def memories(**logs):
    """(family, memory) by family: each of the logs of measured over predicted, of a framework of the family's name."""
    return [(f, RunMemory(f, "device", 1.0, float(np.exp(log)), f, "h100-sxm")) for f, values in logs.items() for log in values]


def test_the_spread_of_memory_weighs_families_alike_and_leaves_one_out():
    """Nine rows of a at 0, one of b at 0.5: half of the weight each, so the lower median is 0 and 80 % of the rows need b."""
    runs = memories(a=[0.0] * 9, b=[0.5])
    assert memory_spreads(runs)["any"] == (pytest.approx(0.0), pytest.approx(0.5), 10, 2)
    assert memory_spreads(runs, "b")["any"] == (pytest.approx(0.0), pytest.approx(0.0), 9, 1)
    assert memory_spreads(runs, "a")["any"] == (pytest.approx(0.5), pytest.approx(0.0), 1, 1)
    assert memory_spreads([]) == {}


def test_many_rows_of_a_framework_move_its_centre_and_few_do_not():
    few = memory_spreads(memories(a=[0.0] * 9, b=[0.5] * 3))
    many = memory_spreads(memories(a=[0.0] * 9, b=[0.5] * (int(POOLED) + 1)))
    assert few["b"][0] == pytest.approx(0.5)  # half of the ten pooled rows are of b too
    assert few["a"][0] == many["a"][0] == pytest.approx(0.0)
    assert many["b"][0] == pytest.approx(0.5)


def test_a_framework_of_one_family_has_no_narrower_spread_than_all():
    found = memory_spreads(memories(a=[0.3, -0.3] * 20, b=[0.1] * 40))
    assert found["b"][1] >= found["any"][1] > 0.0


def test_allocated_peaks_say_nothing_of_the_allocator():
    runs = memories(a=[0.1, 0.2])
    allocated = [("peaks", RunMemory("p", kind, 1.0, 5.0, "megatron", "h100-sxm")) for kind in ("allocated", "analytic")]
    assert memory_spreads([*runs, *allocated]) == memory_spreads(runs)


def test_an_accelerator_has_its_own_spread_where_a_framework_ran_on_several():
    runs = memories(a=[0.0] * 5)
    assert set(memory_spreads(runs)) == {"any", "a"}
    other = [("a", RunMemory("x", "device", 1.0, 1.1, "a", "b200-sxm"))] * 3
    assert set(memory_spreads([*runs, *other])) == {"any", "a", "a on h100-sxm", "a on b200-sxm"}


@pytest.fixture(scope="module")
def measured():
    """The published runs that state their memory."""
    return prepare([run for run in read_runs()[0] if run.cells.get("memory_gb_per_gpu")])[0]


def test_what_is_said_of_a_family_left_out_holds_within_the_error_of_its_rows(measured):
    """Of the rows of a family, the share that finds the memory it needs is the probability that the other families promise."""
    found = memory_coverage(lent_memories(measured))
    assert set(found) == {"bigscience", "torchtitan"}
    for family, figures in found.items():
        error = np.sqrt(0.8 * 0.2 / figures["n"])
        assert abs(figures["within_margin"] - 0.8) < 2.0 * error, family
        assert abs(figures["in_band"] - 0.8) < 2.0 * error, family


def test_the_spreads_that_ship_are_those_of_the_runs_that_ship(measured):
    record = load.record("bands", "default")
    learned = spreads(measured)
    assert set(record.memory) == set(record.memory_centre) == set(learned)
    for group, (centre, half, rows, families) in learned.items():
        assert record.memory_centre[group].value == pytest.approx(max(centre, 0.0), abs=0.005), "run ironlaw validate fit"
        assert record.memory[group].value == pytest.approx(half, abs=0.005), "run ironlaw validate fit"
        assert record.memory[group].note == f"half-width in log; {rows} rows of {families} families"
