"""With the number of accelerators open, ``solve``, ``compare`` and ``plan`` name the same number, money and days."""

from __future__ import annotations

from functools import cache

import pytest

from ironlaw import estimate
from ironlaw.questions.answer import answer_question
from ironlaw.search.answer import search
from ironlaw.terms import scalar

ON, TOKENS = "h100-sxm", "15T"
DAY = 86400.0


@cache
def solved(model, **limits):
    """The answer of ``solve``."""
    return answer_question("solve", {"model": model, "on": ON, "tokens": TOKENS, **limits}, ())


@cache
def found(verb, model, **limits):
    """Accelerators, days and USD by one verb; its plan's step in seconds, where it gives one."""
    asked = {"model": model, "on": ON, "tokens": TOKENS, **limits}
    if verb == "solve":
        answer = solved(model, **limits)
        return answer["gpus"], answer["run_days"], answer["run_usd"]
    if verb == "compare":
        (row,) = answer_question("compare", asked, ())["run"]
        return row["gpus"], row["days_with_failures"], row["usd_with_failures"]
    result = search(**asked)
    best = result.first(1)[0]
    (group,) = result.explained([best])[0][0].groups
    return best.setting.gpus, scalar(group.run.failures.seconds) / DAY, scalar(group.run.usd_with_failures)


DAYS = [(model, days) for model in ("llama-3-70b", "deepseek-v3") for days in (90, 60, 30, 21, 14)]
DAYS = [pytest.param("llama-3-8b", 120), *(pytest.param(*of, marks=pytest.mark.slow) for of in DAYS)]


@pytest.mark.parametrize(("model", "days"), DAYS)
def test_three_verbs_name_the_same_number_money_and_days(model, days):
    first = found("solve", model, deadline=days)
    assert first == found("compare", model, deadline=days) == found("plan", model, deadline=days)
    gpus, taken, usd = first
    assert taken <= days
    alone = estimate(model, on=ON, gpus=gpus, tokens=TOKENS).groups[0].run
    assert scalar(alone.failures.seconds) == pytest.approx(taken * DAY, rel=1e-15) and scalar(alone.usd_with_failures) == usd
    less = estimate(model, on=ON, gpus=gpus * 0.875 // 8 * 8, tokens=TOKENS).groups[0].run  # an eighth less is too few
    assert not scalar(less.failures.seconds) <= days * DAY


@pytest.mark.slow
def test_fewer_days_need_more_accelerators():
    assert found("solve", "llama-3-8b", deadline=120)[0] < found("solve", "llama-3-8b", deadline=40)[0]


@pytest.mark.slow
def test_compare_and_plan_name_the_same_number_for_a_budget():
    gpus = found("compare", "llama-3-8b", budget=2.6e6)[0]
    assert gpus == found("plan", "llama-3-8b", budget=2.6e6)[0]


def test_solve_says_that_failures_are_included():
    assert "failures included" in solved("llama-3-8b", deadline=120).headline[0]
