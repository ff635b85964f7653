"""Defaults and the names of values exist once, and everything that lists them agrees."""

from __future__ import annotations

import subprocess
import sys
import tomllib
from pathlib import Path

import ironlaw
from ironlaw.estimate.pipeline.schedules import SCHEDULES
from ironlaw.job import PRECISIONS, Job
from ironlaw.law.states import OPTIMIZERS
from ironlaw.question import defaults

SPACE = Path(ironlaw.__file__).parent / "estimate" / "planner" / "spaces" / "default.toml"


def test_every_precision_of_the_options_is_modelled_and_no_other():
    assert set(PRECISIONS) == set(defaults.PRECISIONS)


def test_every_optimizer_of_the_options_has_states_and_no_other():
    assert set(OPTIMIZERS) == set(defaults.OPTIMIZERS)
    assert defaults.OPTIMIZER in OPTIMIZERS


def test_every_schedule_of_the_options_has_its_row_and_no_other():
    assert tuple(SCHEDULES) == defaults.SCHEDULES
    assert defaults.SCHEDULE in SCHEDULES


def test_the_default_space_tries_the_usual_values():
    space = tomllib.loads(SPACE.read_text(encoding="utf-8"))
    assert space["micro_batch_size"] == "powers of two"
    assert space["ep"] == [1, 2, 4, 8, 16, 32, 64]
    assert set(space["moe_dispatcher"]) == set(defaults.DISPATCHERS)
    assert set(space["schedule"]) <= set(defaults.SCHEDULES)
    assert "precision" not in space and "cuda_graphs" not in space  # only where the user lists them


def test_defaults_import_no_numpy():
    code = "import sys; from ironlaw.question import defaults, options; sys.exit('numpy' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_the_default_batch_has_the_odd_factors_of_the_number_of_accelerators():
    """So every split into a power of two of tensor and pipeline ranks leaves data-parallel ranks that divide the batch."""
    for gpus in range(1, 10_001):
        for micro in (1.0, 2.0, 3.0):
            batch = defaults.batch(float(gpus), 8192.0, micro)
            odd = gpus // (gpus & -gpus)
            assert batch == int(batch) and batch % (odd * micro) == 0, gpus
            if any(n % (odd * micro) == 0 for n in range(384, 641)):  # a quarter of 4 Mi tokens either way
                assert 384 <= batch <= 640, gpus


def test_the_default_batch_is_4_mi_tokens_for_powers_of_two():
    for power in range(16):
        assert defaults.batch(2.0**power, 8192.0) * 8192 == 4 * 1024**2
        assert defaults.batch(2.0**power, 4096.0) * 4096 == 4 * 1024**2


def test_a_job_has_no_defaults_of_its_own():
    assert Job.required == set(Job.fields)
