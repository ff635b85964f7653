"""Defaults and the names of values exist once, and everything that lists them agrees."""

from __future__ import annotations

import math
import subprocess
import sys
import tomllib
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

import ironlaw
from ironlaw.catalog import load
from ironlaw.divisors import divisors
from ironlaw.estimate.pipeline.schedules import SCHEDULES
from ironlaw.job import Job
from ironlaw.precision import PRECISIONS
from ironlaw.question import defaults

SPACE = Path(ironlaw.__file__).parent / "estimate" / "planner" / "spaces" / "default.toml"


def test_every_precision_of_the_options_is_modelled_and_no_other():
    assert set(PRECISIONS) == set(defaults.PRECISIONS)


def test_the_default_optimizer_is_a_record():
    assert defaults.OPTIMIZER in load.names("optimizers")


def test_every_schedule_of_the_options_has_its_row_and_no_other():
    assert tuple(SCHEDULES) == defaults.SCHEDULES
    assert defaults.SCHEDULE in SCHEDULES


def test_the_default_space_tries_the_usual_values():
    space = tomllib.loads(SPACE.read_text(encoding="utf-8"))
    assert space["micro_batch_size"] == "powers of two"
    assert space["ep"] == [1, 2, 4, 8, 16, 32, 64]
    assert space["moe_dispatcher"] == "all"  # of defaults.DISPATCHERS
    assert space["schedule"] == "all"
    assert "precision" not in space and "cuda_graphs" not in space  # only where the user lists them


def test_defaults_import_no_numpy():
    code = "import sys; from ironlaw.question import defaults, options; sys.exit('numpy' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_the_batches_to_try_are_in_the_range_and_hold_for_every_micro_batch():
    for gpus in range(1, 10_001, 7):
        for micro in (1.0, 2.0, 3.0):
            for most in (640.0, 2048.0):
                batches = defaults.batches(float(gpus), 512.0, 384.0, most, micro)
                assert batches and len(set(batches)) == len(batches)
                assert all(384 <= batch <= most and batch % micro == 0 for batch in batches)


def test_the_batches_to_try_share_all_that_a_larger_batch_of_their_octave_could_share_with_the_accelerators():
    """For every batch of an octave there is one to try, as large or larger, that all its data-parallel sizes divide too."""
    for gpus in (8, 480, 512, 768, 1000, 1300, 1500, 3072, 5000):
        tried = defaults.batches(float(gpus), 512.0, 384.0, 2048.0)
        for low, high in ((384, 512), (513, 1024), (1025, 2048)):
            most = max(math.gcd(batch, gpus) for batch in range(low, high + 1))
            for batch in range(low, high + 1):
                shared = math.gcd(batch, gpus)
                better = (other for other in tried if batch <= other <= high and math.gcd(int(other), gpus) % shared == 0)
                assert 4 * shared < most or any(better)


def test_the_batches_to_try_double_for_powers_of_two():
    for power in range(4, 12):
        assert defaults.batches(2.0**power, 512.0, 384.0, 2048.0)[0] == 512.0
        assert {512.0, 1024.0, 2048.0} <= set(defaults.batches(2.0**power, 512.0, 384.0, 2048.0))


def test_a_job_has_no_defaults_of_its_own():
    assert Job.required == set(Job.fields)


def batches_one_by_one(gpus: int, usual: float, least: float, most: float, micro: int) -> set[float]:
    """What `batches` answers, by its definition: of every octave each whole number is looked at, from the largest."""
    low, high = math.ceil(least / micro), math.floor(most / micro)
    high = max(low, high)
    tried: set[float] = set()
    while high >= low:
        numbers = range(high, max(high // 2 + 1, low) - 1, -1)
        shared = {batch: math.gcd(batch, gpus) for batch in numbers}
        kept: list[int] = []
        for batch in numbers:
            if defaults.FEWEST_SHARED * shared[batch] < max(shared.values()) or any(other % shared[batch] == 0 for other in kept):
                continue
            kept.append(shared[batch])
            multiples = [number for number in numbers if number % shared[batch] == 0]
            tried |= {batch, min(abs(number * micro - usual) for number in multiples)}
        high //= 2
    return tried


COUNTS = st.integers(1, 20_000) | st.sampled_from([2**n for n in range(18)]) | st.sampled_from([720_720, 98_280, 131_071])


@given(
    gpus=COUNTS,
    usual=st.integers(1, 4000),
    share=st.sampled_from([0.1, 0.25]),
    wide=st.sampled_from([1, 4]),
    micro=st.sampled_from([1, 3, 350]),
)
def test_batches_by_divisors_are_those_of_looking_at_every_number(gpus, usual, share, wide, micro):
    """The largest of every set of divisors is tried, and a batch as near to the usual one as any with these divisors."""
    least, most = (1.0 - share) * usual, (1.0 + share) * usual * wide
    found = defaults.batches(float(gpus), float(usual), least, most, float(micro))
    wanted = batches_one_by_one(gpus, usual, least, most, micro)
    away = {abs(batch - usual) for batch in found}
    assert all(one in away or one * micro in found for one in wanted)
    assert len(found) <= 2 * len(wanted)


def test_a_batch_of_a_million_million_takes_no_longer_than_one_of_a_thousand(budget):
    with budget(0.5):
        for gpus in (1.0, 7.0, 32.0, 720_720.0, 999_999_999_989.0):
            for usual in (1e12, 999_999_999_989.0, 1e15):
                tried = defaults.batches(gpus, usual, 0.75 * usual, 1.25 * usual)
                assert 0 < len(tried) < 3000
                assert all(0.75 * usual <= batch <= 1.25 * usual for batch in tried)


@given(st.integers(1, 100_000))
def test_divisors_are_the_numbers_that_leave_no_rest(number):
    small = [d for d in range(1, math.isqrt(number) + 1) if number % d == 0]
    assert divisors(number) == tuple(sorted({float(d) for d in (*small, *(number // d for d in small))}))
