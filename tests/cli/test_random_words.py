"""Random and contradictory options for every verb: an answer, or one clear line; never a traceback."""

from __future__ import annotations

import random

import pytest

from made_words import any_value, options_of
from verbs import QUESTIONS, examples

SLOW = ("solve", "compare", "optimize")  # verbs that ask for many estimates
SEARCH = ["plan", "llama-3-8b", "--on", "h100-sxm", "--gpus", "8", "--fix", "cp=1", "--time-limit", "1"]
BASES = {
    "estimate": [
        ["estimate", "llama-3-8b", "--on", "h100-sxm", "--gpus", "8"],
        ["estimate", "mixtral-8x7b", "--on", "h100-sxm", "--gpus", "64"],
    ],
    "plan": [SEARCH],
}
FORMS = (["--json"], ["--short"], ["--quiet"], ["--format", "csv"], ["--format", "markdown"], ["--explain"], ["--explain", "list"])


def words_of(draw: random.Random) -> list[str]:
    """A question with up to five random options, sometimes in a random form."""
    verb = draw.choice([*(name for name in QUESTIONS if name not in SLOW), "estimate", "estimate", "plan"])
    words, known = list(draw.choice(BASES.get(verb) or examples(verb))), options_of(verb)
    for name in draw.sample(sorted(known), min(len(known), draw.randint(1, 5))):
        if (flag := f"--{name.replace('_', '-')}") not in words:
            words.append(f"{flag}={any_value(name, known[name], draw)}")
    return words + (draw.choice(FORMS) if draw.random() < 0.4 else [])


@pytest.mark.slow
@pytest.mark.parametrize("seed", [1, 2])
def test_no_random_question_ends_in_a_traceback(ask, seed):
    draw = random.Random(seed)
    for _ in range(250):
        words = words_of(draw)
        status, out, err = ask(*words)
        assert status in (0, 1, 2, 3, 4), words
        assert "Traceback" not in err, words
        if status in (2, 3) and not out:
            assert err.count("\n") >= 1 and err.splitlines()[-1].startswith("ironlaw: "), (words, err)


def test_a_few_random_questions_of_light_verbs(ask):
    draw, asked = random.Random(3), 0
    while asked < 25:
        words = words_of(draw)
        if words[0] in ("roofline", "scaling", "inference"):
            asked += 1
            assert ask(*words)[0] in (0, 1, 2, 3), words
