"""The spread of device memory: its shares and quantiles, the probability to fit, and the margin learned from it."""

from __future__ import annotations

import numpy as np
import pytest

from ironlaw.catalog import load
from ironlaw.catalog.sourced import Sourced
from ironlaw.estimate.memory.errors import ANY, Spread, fit_probability, memory_margin, memory_spread
from ironlaw.question.defaults import CERTAINTY, LEAST_MARGIN

GIB = 2.0**30


def spread_of(centre, half_width, coverage=0.8):
    return Spread(*(Sourced(v, "1", str(v), None) for v in (centre, half_width, coverage)), ANY)


def probability(needed, usable, spread):
    return fit_probability(needed, usable, spread.centre.value, spread.half_width.value, spread.coverage.value)


def test_the_probability_is_of_student_t_with_two_degrees_of_freedom():
    stats = pytest.importorskip("scipy.stats")
    spread = spread_of(0.05, 0.12)
    scale = 0.12 / stats.t.ppf(0.9, 2)
    logs = np.linspace(-1.0, 1.0, 41)
    np.testing.assert_allclose(probability(np.exp(-logs), 1.0, spread), stats.t.cdf((logs - 0.05) / scale, 2), atol=1e-12)
    for share in (0.01, 0.3, 0.5, 0.8, 0.99):
        assert spread.quantile(share) == pytest.approx(0.05 + scale * stats.t.ppf(share, 2), abs=1e-12)
        assert float(probability(1.0, np.exp(spread.quantile(share)), spread)) == pytest.approx(share)


def test_the_interval_of_the_half_width_has_the_coverage():
    spread = spread_of(-0.02, 0.3, 0.7)
    low, high = (float(probability(1.0, np.exp(-0.02 + side * 0.3), spread)) for side in (-1.0, 1.0))
    assert high - low == pytest.approx(0.7)


def test_a_run_that_needs_more_is_less_likely_to_fit():
    spread = memory_spread("megatron", "h100-sxm")
    likely = probability(np.linspace(1.0, 200.0, 400) * GIB, 79.6 * GIB, spread)
    assert np.all(np.diff(likely) < 0.0)
    assert np.all((likely > 0.0) & (likely < 1.0))
    assert np.all(np.diff(probability(70.0 * GIB, np.array([71.0, 80.0, 141.0]) * GIB, spread)) > 0.0)


def test_a_framework_without_runs_has_the_spread_of_all_runs():
    assert memory_spread("megatron", "h100-sxm").group == ANY
    assert memory_spread("torchtitan-compile", "h100-sxm").group == "torchtitan-compile"


def test_a_framework_and_accelerator_come_before_the_framework(tmp_path):
    (tmp_path / "bands").mkdir()
    shipped = (load.SHIPPED / "bands" / "default.toml").read_text(encoding="utf-8")
    own = '"megatron on h100-sxm" = { value = "0.02", source = "memory", note = "ours" }\n'
    centre = '"megatron on h100-sxm" = { value = "0.01", source = "memory" }\n'
    text = shipped.replace("[memory]\n", f"[memory]\n{own}").replace("[memory_centre]\n", f"[memory_centre]\n{centre}")
    (tmp_path / "bands" / "default.toml").write_text(text, encoding="utf-8")
    folders = load.given_folders((str(tmp_path),))
    spread = memory_spread("megatron", "h100-sxm", folders)
    assert (spread.centre.value, spread.half_width.value, spread.half_width.note) == (0.01, 0.02, "ours")
    assert spread.group == "megatron on h100-sxm"
    assert memory_spread("megatron", "b200-sxm", folders).group == ANY
    assert memory_margin("megatron", "h100-sxm", folders) == LEAST_MARGIN  # surer than the allocator's slack is large


@pytest.mark.parametrize("framework", sorted(load.names("frameworks")))
def test_a_plan_that_just_keeps_the_margin_fits_with_the_certainty_asked(framework):
    """All memory is allocated, so that the slack is its share of all: the case in which the margin leaves least."""
    margin, slack = memory_margin(framework, "h100-sxm"), load.record("frameworks", framework).allocator_slack.value
    needed = (1.0 - margin) / (1.0 + slack)
    assert LEAST_MARGIN <= margin < 0.2
    found = float(probability(needed, 1.0, memory_spread(framework, "h100-sxm")))
    assert found == pytest.approx(CERTAINTY) if margin > LEAST_MARGIN else found > CERTAINTY
