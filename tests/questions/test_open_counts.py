"""With the number of accelerators open, ``solve``, ``compare`` and ``plan`` name the same number, money and days."""

from __future__ import annotations

from functools import cache

import pytest

from ironlaw import estimate
from ironlaw.questions.compare.ask import ask as ask_compare
from ironlaw.questions.solve.ask import ask as ask_solve
from ironlaw.search.answer import search
from ironlaw.terms import scalar

ON, TOKENS = "h100-sxm", "15T"
DAY = 86400.0


@cache
def found(verb, model, **limits):
    """Accelerators, days and USD by one verb; its plan's step in seconds, where it gives one."""
    asked = {"model": model, "on": ON, "tokens": TOKENS, **limits}
    if verb == "solve":
        answer = ask_solve(asked)
        return answer["gpus"], answer["run_days"], answer["run_usd"]
    if verb == "compare":
        (row,) = ask_compare(asked)["estimate"]
        run = ask_compare(asked)["run"][0] if "usd_with_failures" not in row else row
        return row["gpus"], run["days_with_failures"], run["usd_with_failures"]
    result = search(**asked)
    best = result.first(1)[0]
    (group,) = result.explained([best])[0][0].groups
    return best.setting.gpus, scalar(group.run.failures.seconds) / DAY, scalar(group.run.usd_with_failures)


DAYS = [pytest.param("llama-3-70b", 30), *(pytest.param("llama-3-70b", days, marks=pytest.mark.slow) for days in (90, 60, 21, 14))]
DAYS += [pytest.param("deepseek-v3", days, marks=pytest.mark.slow) for days in (90, 60, 30, 21, 14)]


@pytest.mark.parametrize(("model", "days"), DAYS)
def test_three_verbs_name_the_same_number_money_and_days(model, days):
    first = found("solve", model, deadline=days)
    assert first == found("compare", model, deadline=days) == found("plan", model, deadline=days)
    gpus, taken, usd = first
    assert taken <= days
    alone = estimate(model, on=ON, gpus=gpus, tokens=TOKENS).groups[0].run
    assert scalar(alone.failures.seconds) == taken * DAY and scalar(alone.usd_with_failures) == usd
    less = estimate(model, on=ON, gpus=gpus * 0.9375 // 8 * 8, tokens=TOKENS).groups[0].run  # a sixteenth less is too few
    assert not scalar(less.failures.seconds) <= days * DAY


@pytest.mark.parametrize("model", ["llama-3-8b"])
def test_three_verbs_agree_on_a_small_run_and_more_days_need_no_more_accelerators(model):
    counts = []
    for days in (120, 40):
        first = found("solve", model, deadline=days)
        assert first == found("compare", model, deadline=days) == found("plan", model, deadline=days)
        counts.append(first[0])
    assert counts[0] < counts[1]


def test_compare_and_plan_name_the_same_number_for_a_budget():
    gpus = found("compare", "llama-3-8b", budget=2.6e6)[0]
    assert gpus == found("plan", "llama-3-8b", budget=2.6e6)[0]


def test_solve_says_that_failures_are_included():
    answer = ask_solve({"model": "llama-3-8b", "on": ON, "tokens": TOKENS, "deadline": 120})
    assert "failures included" in answer.headline[0]
