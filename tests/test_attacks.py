"""Some of the attacks of `tools/attack.py`."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

TOOL = Path(__file__).parents[1] / "tools" / "attack.py"


def attacked(*words):
    done = subprocess.run([sys.executable, str(TOOL), *map(str, words)], capture_output=True, text=True, check=False)
    return done.returncode, done.stdout + done.stderr


def test_an_attack_is_answered():
    status, out = attacked("--seed", 1, "--count", 5, "--kind", "files,tables")
    assert status == 0 and "5 attacks, 0 failed" in out, out


@pytest.mark.slow
def test_attacks_of_every_kind_are_answered_or_refused():
    """The same attacks in every run, so that a failure is of the change; ``tools/attack.py --seed N`` makes new ones."""
    status, out = attacked("--seed", 7, "--count", 120)
    assert status == 0, out  # it names the seed and the number of the attack
