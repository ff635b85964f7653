"""A few hundred of the attacks of `tools/attack.py`, new ones in every run."""

from __future__ import annotations

import random
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
def test_new_attacks_are_answered_or_refused():
    seed = random.SystemRandom().randrange(10**6)
    status, out = attacked("--seed", seed, "--count", 300)
    assert status == 0, out  # it names the seed and the number of the attack
