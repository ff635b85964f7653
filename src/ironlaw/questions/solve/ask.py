"""Solve for accelerators, time, tokens, MFU or budget of a run from the others: a minimum and a maximum.

The minimum is what the work needs at its MFU, the maximum what the budget pays for. ``estimate`` predicts the MFU unless it is given.
``five_steps`` checks the answer by hand.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from ironlaw import units
from ironlaw.errors import QuestionError
from ironlaw.questions.answer import Answer, Column, Table, need, read
from ironlaw.questions.compare.fewest import describe_plan, rounded_down
from ironlaw.questions.solve import five_steps
from ironlaw.questions.solve.options import OPTIONS, UNKNOWNS
from ironlaw.questions.solve.workload import Workload

DAY = 86400.0
COUNTS = (
    Column("way", "count"), Column("gpus", "GPUs", "1"), Column("mfu_needed", "MFU needed", "%"),
    Column("usd_to_deadline", "USD to the deadline", "USD"), Column("days", "days at the MFU", "1"),
)  # fmt: skip


@dataclass(frozen=True)
class Solution:
    """What a solver finds: sentences, the count of accelerators it is for, and the keys of its JSON."""

    headline: list[str]
    gpus: float | None
    values: dict[str, Any]
    feasible: bool = True


def ask(options: Mapping[str, Any], folders: tuple[str, ...] = ()) -> Answer:
    """The answer to options as the command line gives them."""
    values = read(options, OPTIONS, "solve")
    need(values, "on")
    if "model" not in values and "parameters" not in values:
        raise QuestionError("missing MODEL, or --parameters N")
    unknown = _pick_unknown(values)
    workload = Workload.of(values, folders)
    if "budget" in values and not workload.price.value:
        del values["budget"]
        workload.warnings.append("--budget sets no limit: the price is 0")
    if "gpus" in values and "model" in values:
        workload.require_plan(values["gpus"])
    if "gpus" in values and "mfu" not in values and (why_not := workload.does_not_fit(values["gpus"])):
        return Answer(
            title=f"{workload.title} on {values['on']}: {unknown}",
            headline=[why_not],
            values={"solved_for": unknown, "gpus": values["gpus"]},
            assumptions=workload.assumptions,
            warnings=list(dict.fromkeys(workload.warnings)),
            feasible=False,
            folders=folders,
        )
    solution = SOLVERS[unknown](values, workload)
    gpus = solution.gpus
    estimate = workload.plan(gpus) if gpus else None
    mfu = values.get("mfu") or solution.values.get("mfu") or (workload.predicted_mfu(gpus) if gpus else None)
    checks = five_steps.check(values, workload, estimate, gpus, mfu) if gpus else None
    headline, feasible, plan = [*solution.headline, *_say_pace(workload, gpus, mfu)], solution.feasible, {}
    if "mfu" in values and gpus:
        workload.mfu(gpus, values["mfu"])  # adds a warning if it is above the predicted MFU
    if gpus and estimate is not None and estimate.legal[0]:
        if not estimate.fits[0]:
            headline.insert(0, f"no: the job does not fit on {_gpus(gpus)}, see step 1")
            feasible = False
        plan = {"plan": describe_plan(estimate)}
        headline.append(f"plan: {plan['plan']}")
    counts = Table("ways", "Counts to choose from", COUNTS, _tabulate_counts(values, workload, solution, mfu))
    return Answer(
        title=f"{workload.title} on {values['on']}: {unknown}",
        headline=headline,
        tables=[counts, *(five_steps.tables(checks, gpus) if checks and gpus else ())],
        terms=workload.terms,
        values={"solved_for": unknown, "gpus": gpus, **solution.values, **plan, "checks": checks.data() if checks else {}},
        assumptions=workload.assumptions,
        warnings=list(dict.fromkeys(workload.warnings)),
        feasible=feasible,
        folders=folders,
    )


def _pick_unknown(values: dict[str, Any]) -> str:
    """What to solve for: --solve-for, or the first unknown that is not given."""
    given = {name: ("deadline" if name == "time" else name) in values for name in UNKNOWNS}
    asked = values.get("solve_for")
    if asked:
        if given[asked]:
            raise QuestionError(f"--solve-for {asked}, but {asked} is given: leave one of the two out")
        return str(asked)
    if all(given[name] for name in ("gpus", "time", "tokens", "mfu")):
        raise QuestionError("--gpus, --deadline, --tokens and --mfu determine each other: leave out the one to solve for")
    return next(name for name in UNKNOWNS if not given[name])


def _solve_gpus(values: dict[str, Any], workload: Workload) -> Solution:
    """The fewest accelerators for the deadline, and the most for the budget."""
    need(values, "deadline")
    if "tokens" not in values and "budget" not in values:
        raise QuestionError("missing option --tokens (for the fewest GPUs), or --budget with a price above 0 (for the most)")
    seconds, headline, feasible, ends = values["deadline"], [], True, {}
    fewest = most = None
    if "tokens" in values:
        fewest = workload.fewest(values["tokens"], seconds, values.get("mfu"))
        if fewest is None:
            headline.append(f"no plan reaches {values['tokens'] / seconds:,.0f} tokens/s, which the deadline needs")
            feasible = False
        else:
            usd = workload.rent("rent of the fewest", fewest, seconds)
            headline.append(f"at least {_gpus(fewest)}: {units.amount(usd)} USD for {units.show(seconds, 's', 4)}")
    if "budget" in values:
        most = workload.affordable_gpus(values["budget"], seconds)
        hours = workload.gpu_hours(most, seconds)
        if most < 1.0:
            headline.insert(0, "no: the budget pays for less than one GPU until the deadline")
            feasible = False
        headline.append(f"at most {_gpus(math.floor(most))}: {units.amount(hours)} GPU-hours for {values['budget']:,.0f} USD")
    if fewest is not None and most is not None and fewest > most:
        run = _run_to_its_end(values, workload, fewest)
        if run is None or run[1] > values["budget"]:
            headline.insert(0, "no: the budget pays for fewer GPUs than the deadline needs")
            feasible = False
        else:
            paid = f"{units.amount(run[1])} USD for {units.show(run[0], 's', 4)}"
            headline.append(f"the fewest finish before the deadline, within the budget: {paid}")
            ends = {"run_days": run[0] / DAY, "run_usd": run[1]}
    gpus = fewest if fewest is not None else math.floor(most or 0)
    return Solution(headline, gpus or None, {**ends, "min_gpus": fewest, "max_gpus": most}, feasible)


def _run_to_its_end(values: dict[str, Any], workload: Workload, gpus: float) -> tuple[float, float] | None:
    """Seconds and USD where accelerators are rented until the run ends, not until the deadline; None without an MFU."""
    mfu = values.get("mfu") or workload.predicted_mfu(gpus)
    if not mfu:
        return None
    seconds = workload.seconds(values["tokens"], gpus, mfu)
    return seconds, workload.rent("rent to the end of the run", gpus, seconds)


def _solve_time(values: dict[str, Any], workload: Workload) -> Solution:
    """The shortest run by the MFU, and the longest by the budget; without tokens, the rate alone."""
    need(values, "gpus")
    gpus, headline, numbers, feasible = values["gpus"], [], {}, True
    mfu = workload.mfu(gpus, values.get("mfu"))
    if "budget" in values:
        longest = workload.affordable_seconds(values["budget"], gpus)
        headline.append(f"the budget pays for {_gpus(gpus)} for at most {units.show(longest, 's', 4)}")
        numbers["max_days"] = longest / DAY
    if "tokens" in values and mfu:
        shortest = workload.seconds(values["tokens"], gpus, mfu)
        usd = workload.rent("rent of the shortest", gpus, shortest)
        headline.insert(0, f"at least {units.show(shortest, 's', 4)}: {units.amount(usd)} USD for {_gpus(gpus)}")
        numbers["min_days"] = shortest / DAY
        if numbers.get("max_days", math.inf) < numbers["min_days"]:
            headline.insert(0, "no: the budget is spent before the run ends")
            feasible = False
    return Solution(headline, gpus, {**numbers, "mfu": mfu}, feasible)


def _solve_tokens(values: dict[str, Any], workload: Workload) -> Solution:
    """The most tokens that the time allows, and the most that the budget pays for."""
    need(values, "gpus")
    gpus = values["gpus"]
    mfu = workload.mfu(gpus, values.get("mfu"))
    limits = dict(_time_limits(values, workload))
    most = {name: workload.tokens(f"most tokens by {name}", gpus, seconds, mfu) for name, seconds in limits.items()}
    headline = [f"at most {units.show(count, 'token', 4)} by the {name}" for name, count in sorted(most.items(), key=lambda item: item[1])]
    return Solution(headline, gpus, {"mfu": mfu, "max_tokens": min(most.values()), "max_tokens_by": most})


def _time_limits(values: dict[str, Any], workload: Workload) -> Iterator[tuple[str, float]]:
    """Seconds that the deadline allows, and seconds that the budget pays for, each with its name."""
    if "deadline" not in values and "budget" not in values:
        raise QuestionError("missing option --deadline, or --budget with a price above 0")
    if "deadline" in values:
        yield "deadline", values["deadline"]
    if "budget" in values:
        yield "budget", workload.affordable_seconds(values["budget"], values["gpus"])


def _solve_mfu(values: dict[str, Any], workload: Workload) -> Solution:
    """The MFU that the deadline needs and that the budget needs, against the predicted one."""
    need(values, "tokens", "gpus")
    gpus, operations = values["gpus"], workload.work(values["tokens"])
    needed = {}
    for name, seconds in _time_limits(values, workload):
        needed[name] = workload.mfu_for(f"MFU the {name} needs", operations, gpus, seconds)
        if name == "deadline":
            workload.flop_rate("rate the deadline needs", operations, seconds)
    predicted = workload.predicted_mfu(gpus)
    least = max(needed.values())
    headline = [f"at least {share:.2%} MFU to meet the {name}" for name, share in needed.items()]
    if predicted:
        headline.append(f"estimate predicts {predicted:.1%}: {'enough' if predicted >= least else 'not enough'}")
    if least > 1.0:
        headline.insert(0, f"no: this needs {least:.0%} of the peak")
    numbers = {"mfu": predicted, "min_mfu": least, "min_mfu_by": needed, "predicted_mfu": predicted}
    return Solution(headline, gpus, numbers, least <= (predicted or 1.0))


def _solve_budget(values: dict[str, Any], workload: Workload) -> Solution:
    """What the run costs at its MFU, and what renting the accelerators until the deadline costs."""
    need(values, "gpus", "tokens")
    gpus = values["gpus"]
    mfu = workload.mfu(gpus, values.get("mfu"))
    shortest = workload.seconds(values["tokens"], gpus, mfu)
    least = workload.rent("least budget", gpus, shortest)
    headline = [f"at least {units.amount(least)} USD: {_gpus(gpus)} for {units.show(shortest, 's', 4)}"]
    numbers, feasible = {"mfu": mfu, "min_usd": least, "min_days": shortest / DAY}, True
    if "deadline" in values:
        numbers["max_usd"] = workload.rent("budget to the deadline", gpus, values["deadline"])
        headline.append(f"{units.amount(numbers['max_usd'])} USD if they are rented until the deadline")
        if shortest > values["deadline"]:
            late = units.show(shortest, "s", 4), units.show(values["deadline"], "s", 4)
            headline.insert(0, f"no: the run takes {late[0]}, the deadline is {late[1]}")
            feasible = False
    return Solution(headline, gpus, numbers, feasible)


SOLVERS = {"gpus": _solve_gpus, "time": _solve_time, "tokens": _solve_tokens, "mfu": _solve_mfu, "budget": _solve_budget}


def _gpus(count: float) -> str:
    """A count of accelerators in words.

    >>> _gpus(1), _gpus(2048)
    ('1 GPU', '2,048 GPUs')
    """
    return f"{count:,.0f} GPU" + ("s" if count != 1 else "")


def _say_pace(workload: Workload, gpus: float | None, mfu: float | None) -> list[str]:
    """Tokens per second and the time of a step at a count and an MFU."""
    if not gpus or not mfu:
        return []
    rate = workload.tokens("tokens of a second", gpus, 1.0, mfu)
    text = f"{_gpus(gpus)} at {mfu:.1%} MFU process{'es' if gpus == 1 else ''} {rate:,.0f} tokens/s"
    step = workload.step_seconds(gpus, mfu)
    return [text + (f", a step of {workload.batch:,.0f} tokens takes {units.show(step, 's', 3)}" if step else "")]


def _tabulate_counts(values: dict[str, Any], workload: Workload, solution: Solution, mfu: float | None) -> list[dict[str, Any]]:
    """Counts between the fewest and the most: the MFU each needs, its time and its cost."""
    counts: dict[str, float] = {}
    if solution.values.get("min_gpus"):
        counts["the fewest"] = solution.values["min_gpus"]
    if most := solution.values.get("max_gpus"):
        counts |= {"the most": math.floor(most), **rounded_down(most, workload.node)}
    seconds, tokens = values.get("deadline"), values.get("tokens")
    rows = []
    for name, gpus in counts.items():
        row: dict[str, Any] = {"way": name, "gpus": gpus}
        if seconds:
            row["usd_to_deadline"] = workload.rent(f"rent of {gpus:.0f} to the deadline", gpus, seconds)
            if tokens:
                row["mfu_needed"] = workload.mfu_for(f"MFU needed by {gpus:.0f} GPUs", workload.work(tokens), gpus, seconds)
        if mfu and tokens and gpus:
            row["days"] = workload.seconds(tokens, gpus, mfu) / DAY
        rows.append(row)
    return rows
