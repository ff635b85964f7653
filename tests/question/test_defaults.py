"""Defaults and the names of values exist once, and everything that lists them agrees."""

from __future__ import annotations

import subprocess
import sys
import tomllib
from dataclasses import MISSING, fields
from pathlib import Path

import ironlaw
from ironlaw.estimate.pipeline.schedules import SCHEDULES
from ironlaw.job import PRECISIONS, Job
from ironlaw.law.states import OPTIMIZERS
from ironlaw.question import defaults

SPACE = Path(ironlaw.__file__).parent / "search" / "spaces" / "default.toml"


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
    assert tuple(space["micro_batch_size"]) == defaults.MICRO_BATCHES
    assert tuple(space["vpp"]) == defaults.CHUNKS
    assert tuple(space["ep"]) == defaults.EXPERT_RANKS
    assert set(space["recompute"]) <= set(defaults.RECOMPUTES)


def test_defaults_import_no_numpy():
    code = "import sys; from ironlaw.question import defaults, options; sys.exit('numpy' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_the_default_batch_is_a_whole_number_for_every_count_of_accelerators():
    for gpus in range(1, 10_001):
        batch = defaults.batch(float(gpus), 8192.0)
        assert batch == int(batch)
        assert batch * 8192 >= defaults.BATCH_TOKENS
        ranks = gpus if gpus <= 512 else gpus / [d for d in (1, 2, 4, 8, 16, 32, 64, 128) if gpus % d == 0][-1]
        assert batch % ranks == 0, gpus


def test_a_job_has_no_defaults_of_its_own():
    assert all(f.default is MISSING and f.default_factory is MISSING for f in fields(Job))
