"""Solve for accelerators, time, tokens, MFU or budget of a run from the others: a minimum and a maximum.

The minimum is what the work needs at its MFU, the maximum what the budget pays for. ``estimate`` predicts the MFU unless it is given.
``five_steps`` checks the answer by hand.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from ironlaw import units
from ironlaw.cautions.record import Sentence
from ironlaw.cautions.table import caution
from ironlaw.errors import QuestionError
from ironlaw.estimate.answer.estimate import Estimate
from ironlaw.estimate.what_if.measured_run import MeasuredRun, mfu_words, utilisations
from ironlaw.estimate.what_if.sizing import rounded_down
from ironlaw.law import run as run_law
from ironlaw.questions.answer import Answer, Column, Table
from ironlaw.questions.plan_words import describe_plan
from ironlaw.questions.solve import by_hand, five_steps
from ironlaw.questions.solve.options import UNKNOWNS
from ironlaw.questions.solve.workload import Workload
from ironlaw.questions.throughput import describe_measured, tabulate_suspects
from ironlaw.terms import scalar

DAY = 86400.0
ROUNDED = (
    Column("rounding", "rounding"), Column("steps", "steps", "1"), Column("more_tokens", "tokens beyond those asked", "token"),
    Column("step", "step", "s"),
    Column("seconds", "run takes", "s"), Column("days", "days", "1"), Column("used", "used here"),
)  # fmt: skip


@dataclass(frozen=True)
class Solution:
    """What a solver finds: sentences, the count of accelerators it is for, and the keys of its JSON."""

    headline: list[str]
    gpus: float | None
    values: dict[str, Any]
    feasible: bool = True


def ask(values: dict[str, Any], folders: tuple[str, ...] = ()) -> Answer:
    """The answer to options as the command line gives them."""
    flops = values.get("flops_per_gpu")
    if flops is not None:
        if "tokens_per_second" in values:
            raise QuestionError("--flops-per-gpu and --tokens-per-second both say how fast the run was: leave one of the two out")
        values["tokens_per_second"] = flops  # of one token, until its FLOP are counted
    unknown = _pick_unknown(values)
    _refuse_incomplete(values, unknown)
    workload = Workload.of(values, folders)
    if flops is not None:
        values["tokens_per_second"] = workload.tokens_of_flops(values["gpus"], flops)
    if "budget" in values and not workload.price.value:
        del values["budget"]
        workload.warnings.append(caution("budget-sets-no-limit"))
        _refuse_incomplete(values, unknown, free=True)
    if "gpus" in values and "model" in values:
        workload.require_plan(values["gpus"])
    run, sentences = _read_measured(values, workload)
    if "gpus" in values and "mfu" not in values and (why_not := workload.does_not_fit(values["gpus"])):
        solution = Solution([why_not], values["gpus"], {}, feasible=False)
    elif run is not None and unknown == "mfu":
        solution = Solution(sentences, values["gpus"], {"mfu": scalar(run.utilisation[workload.mfu_key])}, feasible=run.of_peak <= 1.0)
    else:
        solution = SOLVERS[unknown](values, workload)
        solution.headline.extend(sentences)
    return _write_answer(values, workload, solution, run, unknown)


def _write_answer(values: dict[str, Any], workload: Workload, solution: Solution, run: MeasuredRun | None, unknown: str) -> Answer:
    """The answer: the solution, the pace and the plan, counts, roundings, the five steps, and what could explain a measured throughput."""
    gpus = solution.gpus
    estimate = workload.plan(gpus) if gpus else None
    mfu = values.get("mfu") or solution.values.get("mfu") or (workload.predicted_mfu(gpus) if gpus else None)
    checks = five_steps.check(values, workload, estimate, gpus, mfu) if gpus else None
    pace = [] if run is not None and unknown == "mfu" else _say_pace(workload, gpus, mfu)
    headline, feasible, plan = [*solution.headline, *pace], solution.feasible, {}
    if "mfu" in values and gpus:
        workload.mfu(gpus, values["mfu"])  # adds a warning if it is above the predicted MFU
    if gpus and estimate is not None and estimate.legal[0]:
        if not estimate.fits[0]:
            if feasible:
                headline.insert(0, Sentence(f"no: the plan of the estimate does not fit on {_gpus(gpus)}, see step 1", "does-not-fit"))
            feasible = False
        plan = {"plan": describe_plan(estimate)}
        headline += _say_plan(workload, estimate, gpus, plan["plan"])
    rule, parameters = by_hand.count_parameters(workload)
    sold, usable, states = by_hand.least_to_hold(workload)
    workload.record(rule, sold, usable)
    counts = Table("ways", "Counts to choose from", _count_columns(workload), _tabulate_counts(values, workload, solution, mfu))
    rows = run.data()["suspects"] if run is not None else []
    return Answer(
        title=f"{workload.title} on {values['on']}, solved for {'MFU' if unknown == 'mfu' else unknown}",
        headline=[*headline, Sentence(parameters, "parameters"), Sentence(states, "states")],
        tables=[
            *([tabulate_suspects(rows)] if rows else []),
            counts,
            Table("roundings", "Steps of the run, by rounding", ROUNDED, _tabulate_roundings(values, workload, gpus, mfu)),
            *(five_steps.tables(checks, workload) if checks else ()),
        ],
        terms=workload.terms,
        values={
            "solved_for": unknown, "gpus": gpus, **solution.values, **plan, "mfu_convention": workload.mfu_name,
            "measured": run.data() if run is not None else None, "checks": checks.data() if checks else {},
        },
        assumptions=workload.assumptions,
        warnings=list(dict.fromkeys(workload.warnings)),
        feasible=feasible,
        folders=workload.folders,
    )  # fmt: skip


def _pick_unknown(values: dict[str, Any]) -> str:
    """What to solve for: --solve-for, or the first unknown that is not given; the MFU of a measured throughput."""
    given = {name: ("deadline" if name == "time" else name) in values for name in UNKNOWNS}
    measured = "tokens_per_second" in values
    given["mfu"] = given["mfu"] and not measured  # beside a measured throughput an MFU is what it is compared with
    asked = values.get("solve_for")
    if asked:
        if given[asked]:
            raise QuestionError(f"--solve-for {asked}, but {asked} is given: leave one of the two out")
        return str(asked)
    if measured:
        return "mfu"
    if all(given[name] for name in ("gpus", "time", "tokens", "mfu")):
        raise QuestionError("--gpus, --deadline, --tokens and --mfu determine each other: leave out the one to solve for")
    return next(name for name in UNKNOWNS if not given[name])


LIMIT = ("--deadline", "--budget with a price above 0")


def _refuse_incomplete(values: dict[str, Any], unknown: str, free: bool = False) -> None:
    """Refuse a question whose options do not determine its unknown: one line names what is missing.

    ``free``: the price is 0, so that a budget is no limit.
    """
    given = set(values)
    budget = "--budget" if not free else LIMIT[1]
    needed: dict[str, list[tuple[Any, str]]] = {
        "gpus": [
            ("deadline" in given, "--deadline"),
            (given & {"tokens", "budget"}, f"--tokens (for the fewest), or {LIMIT[1]} (for the most)"),
        ],
        "time": [
            ("gpus" in given, "--gpus"),
            (
                given & {"tokens", "budget", "global_batch_size", "global_batch_tokens"},
                f"--tokens (for the time of the run), {budget} (for the longest), or --global-batch-tokens (for a step)",
            ),
        ],
        "tokens": [("gpus" in given, "--gpus"), (given & {"deadline", "budget", "tokens_per_second"}, f"{LIMIT[0]}, or {LIMIT[1]}")],
        "mfu": [
            ("gpus" in given, "--gpus"),
            (given & {"tokens", "tokens_per_second"}, "--tokens (with --deadline or --budget), or --tokens-per-second (measured)"),
            (given & {"deadline", "budget", "tokens_per_second"}, f"{LIMIT[0]}, or {LIMIT[1]}"),
        ],
        "budget": [("gpus" in given, "--gpus"), ("tokens" in given, "--tokens")],
    }  # fmt: skip
    if lacking := [words for present, words in needed[unknown] if not present]:
        raise QuestionError(f"to solve for {unknown}: missing option {', and '.join(lacking)}")
    if "tokens_per_second" in given and unknown == "gpus":
        raise QuestionError("a measured --tokens-per-second is of a known number of GPUs: give --gpus, or leave it out")


def _read_measured(values: dict[str, Any], workload: Workload) -> tuple[MeasuredRun | None, list[str]]:
    """The measured throughput against the estimate, with sentences; for another unknown its MFU is the MFU of the run."""
    if "tokens_per_second" not in values:
        return None, []
    rate, gpus, target = values["tokens_per_second"], values["gpus"], values.pop("mfu", None)
    run = workload.measured(gpus, rate)
    sentences = describe_measured(run)
    if target is not None:
        expected = workload.tokens("tokens of a second at the given MFU", gpus, 1.0, target)
        sentences.append(f"at {target:.1%} {workload.mfu_name}: {expected:,.0f} tokens/s, of which the measured are {rate / expected:.1%}")
    values["mfu"] = scalar(run.utilisation[workload.mfu_key])
    return run, sentences


def _solve_gpus(values: dict[str, Any], workload: Workload) -> Solution:
    """The fewest accelerators for the deadline, and the most for the budget."""
    headline: list[str] = []
    seconds, feasible = values["deadline"], True
    ends: dict[str, Any] = {}
    fewest = most = None
    if "tokens" in values:
        fewest = workload.fewest(values["tokens"], seconds, values.get("mfu"))
        if fewest is None:
            rate = values["tokens"] / seconds
            text = f"no plan reaches {rate:,.0f} tokens/s, which the deadline needs"
            headline.append(Sentence(text, "too-slow", {"tokens_per_second": rate}))
            feasible = False
        else:
            text = f"at least {_gpus(fewest)}: {_say_run(values, workload, fewest, ends)}"
            headline.append(Sentence(text, "fewest", {"gpus": fewest, **ends}))
    if "budget" in values:
        most = workload.affordable_gpus(values["budget"], seconds)
        hours = workload.gpu_hours(most, seconds)
        if most < 1.0:
            headline.insert(0, Sentence("no: the budget pays for less than one GPU until the deadline", "budget-too-small"))
            feasible = False
        text = f"at most {_gpus(math.floor(most))}: {units.amount(hours)} GPU-hours for {values['budget']:,.0f} USD"
        headline.append(Sentence(text, "most", {"gpus": math.floor(most), "gpu_hours": hours, "usd": values["budget"]}))
    if fewest is not None and most is not None and fewest > most:
        run = _run_to_its_end(values, workload, fewest)
        if run is None or run[1] > values["budget"]:
            headline.insert(0, Sentence("no: the budget pays for fewer GPUs than the deadline needs", "budget-too-small"))
            feasible = False
        else:
            paid = f"{units.amount(run[1])} USD for {units.show(run[0], 's', 4)}"
            told = {"usd": run[1], "seconds": run[0]}
            headline.append(Sentence(f"the fewest finish before the deadline, within the budget: {paid}", "within-budget", told))
            ends |= {"run_days": run[0] / DAY, "run_usd": run[1]}
    gpus = fewest if fewest is not None else math.floor(most or 0)
    return Solution(headline, gpus or None, {**ends, "min_gpus": fewest, "max_gpus": most}, feasible)


def _say_run(values: dict[str, Any], workload: Workload, gpus: float, ends: dict[str, Any]) -> str:
    """The time and money of the run on the fewest accelerators, with failures; at a given MFU, their rent to the deadline."""
    seconds = values["deadline"]
    run = None if "mfu" in values else workload.run_of(gpus)
    if run is None:
        return f"{units.amount(workload.rent('rent of the fewest', gpus, seconds))} USD for {units.show(seconds, 's', 4)}"
    ends |= {"run_days": run[0] / DAY, "run_usd": run[1]}
    return f"{units.amount(run[1])} USD in {units.show(run[0], 's', 4)}, failures included"


def _run_to_its_end(values: dict[str, Any], workload: Workload, gpus: float) -> tuple[float, float] | None:
    """Seconds and USD where accelerators are rented until the run ends, not until the deadline; None where no plan fits."""
    if "mfu" not in values:
        return workload.run_of(gpus)
    seconds = workload.seconds(values["tokens"], gpus, values["mfu"])
    return seconds, workload.rent("rent to the end of the run", gpus, seconds)


def _solve_time(values: dict[str, Any], workload: Workload) -> Solution:
    """The shortest run by the MFU, and the longest by the budget; without tokens and budget, the time of a step."""
    headline: list[str] = []
    gpus, numbers, feasible = values["gpus"], {}, True
    mfu = workload.mfu(gpus, values.get("mfu"))
    if "budget" in values:
        longest = workload.affordable_seconds(values["budget"], gpus)
        text = f"the budget pays for {_gpus(gpus)} for at most {units.show(longest, 's', 4)}"
        headline.append(Sentence(text, "longest", {"gpus": gpus, "seconds": longest}))
        numbers["max_days"] = longest / DAY
    if "tokens" in values:
        shortest = workload.seconds(values["tokens"], gpus, mfu)
        usd = workload.rent("rent of the shortest", gpus, shortest)
        text = f"at least {units.show(shortest, 's', 4)}: {units.amount(usd)} USD for {_gpus(gpus)}"
        headline.insert(0, Sentence(text, "shortest", {"seconds": shortest, "usd": usd, "gpus": gpus}))
        numbers["min_days"] = shortest / DAY
        if numbers.get("max_days", math.inf) < numbers["min_days"]:
            headline.insert(0, Sentence("no: the budget is spent before the run ends", "budget-too-small"))
            feasible = False
    step, batch = workload.step_of(gpus, mfu)
    if not headline and step is not None:
        text = f"{units.show(step, 's', 4)} a step of {batch:,.0f} tokens (the time of the run needs --tokens)"
        headline.append(Sentence(text, "step", {"seconds": step, "tokens": batch}))
        numbers["step_seconds"] = step
    return Solution(headline, gpus, {**numbers, "mfu": mfu}, feasible)


def _solve_tokens(values: dict[str, Any], workload: Workload) -> Solution:
    """The most tokens that the time allows, and the most that the budget pays for."""
    gpus = values["gpus"]
    mfu = workload.mfu(gpus, values.get("mfu"))
    limits = dict(_time_limits(values, workload))
    most = {name: workload.tokens(f"most tokens by {name}", gpus, seconds, mfu) for name, seconds in limits.items()}
    counts = sorted(most.items(), key=lambda item: item[1])
    headline: list[str] = [
        Sentence(f"at most {units.show(count, 'token', 4)} by the {name}", "most-tokens", {"by": name, "tokens": count})
        for name, count in counts
    ]
    return Solution(headline, gpus, {"mfu": mfu, "max_tokens": min(most.values()), "max_tokens_by": most})


def _time_limits(values: dict[str, Any], workload: Workload) -> Iterator[tuple[str, float]]:
    """Seconds that the deadline allows, and seconds that the budget pays for, each with its name."""
    if "deadline" in values:
        yield "deadline", values["deadline"]
    if "budget" in values:
        yield "budget", workload.affordable_seconds(values["budget"], values["gpus"])


def _solve_mfu(values: dict[str, Any], workload: Workload) -> Solution:
    """The MFU that the deadline needs and that the budget needs, against the predicted one."""
    gpus, operations = values["gpus"], workload.work(values["tokens"])
    needed = {}
    for name, seconds in _time_limits(values, workload):
        needed[name] = workload.mfu_for(f"MFU the {name} needs", operations, gpus, seconds)
        if name == "deadline":
            workload.flop_rate("rate the deadline needs", operations, seconds)
    predicted = workload.predicted_mfu(gpus)
    least = max(needed.values())
    headline: list[str] = [
        Sentence(f"at least {share:.2%} {workload.mfu_name} to meet the {name}", "least-mfu", {"by": name, "mfu": share})
        for name, share in needed.items()
    ]
    if predicted:
        text = f"predicted {workload.mfu_name} {predicted:.1%}: {'enough' if predicted >= least else 'not enough'}"
        headline.append(Sentence(text, "predicted-mfu", {"mfu": predicted, "least": least}))
    if least > 1.0:
        headline.insert(0, Sentence(f"no: this needs {least:.3g} times the peak", "above-peak", {"times": least}))
    numbers = {"mfu": predicted, "min_mfu": least, "min_mfu_by": needed, "predicted_mfu": predicted}
    return Solution(headline, gpus, numbers, least <= (predicted or 1.0))


def _solve_budget(values: dict[str, Any], workload: Workload) -> Solution:
    """What the run costs at its MFU, and what renting the accelerators until the deadline costs."""
    gpus = values["gpus"]
    mfu = workload.mfu(gpus, values.get("mfu"))
    shortest = workload.seconds(values["tokens"], gpus, mfu)
    least = workload.rent("least budget", gpus, shortest)
    text = f"at least {units.amount(least)} USD: {_gpus(gpus)} for {units.show(shortest, 's', 4)}"
    headline: list[str] = [Sentence(text, "least-usd", {"usd": least, "gpus": gpus, "seconds": shortest})]
    numbers, feasible = {"mfu": mfu, "min_usd": least, "min_days": shortest / DAY}, True
    if "deadline" in values:
        numbers["max_usd"] = workload.rent("budget to the deadline", gpus, values["deadline"])
        text = f"{units.amount(numbers['max_usd'])} USD if they are rented until the deadline"
        headline.append(Sentence(text, "most-usd", {"usd": numbers["max_usd"]}))
        if shortest > values["deadline"]:
            late = units.show(shortest, "s", 4), units.show(values["deadline"], "s", 4)
            told = {"seconds": shortest, "deadline": values["deadline"]}
            headline.insert(0, Sentence(f"no: the run takes {late[0]}, the deadline is {late[1]}", "too-slow", told))
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
    text = f"{_gpus(gpus)} at {mfu:.1%} {workload.mfu_name} process{'es' if gpus == 1 else ''} {rate:,.0f} tokens/s"
    step, batch = workload.step_of(gpus, mfu)
    text += "" if step is None else f", a step of {batch:,.0f} tokens takes {units.show(step, 's', 3)}"
    return [Sentence(text, "pace", {"gpus": gpus, "mfu": mfu, "tokens_per_second": rate, "step_seconds": step})]


def _say_plan(workload: Workload, estimate: Estimate, gpus: float, plan: str) -> list[str]:
    """The estimate's plan with its batch, and the MFU it predicts by every convention."""
    group, at = estimate.place_of(0)
    sequences, length = (scalar(getattr(group.plan, name), at) for name in ("global_batch_size", "seq_len"))
    asked = "given" if workload.batch else "chosen with the plan"
    if workload.asked_batch not in (None, workload.batch):
        asked = f"{workload.asked_batch:,.0f} asked"
    batch = f"batch {sequences:,.0f} x {length:,.0f} = {sequences * length:,.0f} tokens ({asked})"
    of = "" if scalar(group.plan.gpus, at) == gpus else f" (of {scalar(group.plan.gpus, at):,.0f} GPUs)"
    predicted = utilisations(group, at, scalar(group.step.tree, at), workload.given_parameters, "predicted")
    rates = mfu_words({key: scalar(term) for key, term in predicted.items()})
    first = Sentence(f"plan{of}: {plan}; {batch}", "plan", {"global_batch_size": sequences, "seq_len": length})
    told = {key: scalar(term) for key, term in predicted.items()}
    return [first, Sentence(f"predicted for this plan: {rates}", "predicted-mfu", told)]


def _tabulate_roundings(values: dict[str, Any], workload: Workload, gpus: float | None, mfu: float | None) -> list[dict[str, Any]]:
    """Steps, tokens and time of the run by every rounding of the steps; none where they are all the same."""
    if not (gpus and mfu and "tokens" in values):
        return []
    step, batch = workload.step_of(gpus, mfu)
    if step is None or batch is None:
        return []
    used = workload.rounding_of(gpus, mfu)
    rows = []
    for name, how in run_law.ROUNDINGS.items():
        steps = float(run_law.steps(values["tokens"], batch, how))
        rows.append({
            "rounding": name, "steps": steps, "more_tokens": steps * batch - values["tokens"], "step": step, "seconds": steps * step,
            "days": steps * step / DAY, "used": name == used,
        })  # fmt: skip
    return rows


def _count_columns(workload: Workload) -> tuple[Column, ...]:
    """Columns of the counts to choose from; the MFU by its convention."""
    return (
        Column("way", "count"), Column("gpus", "GPUs", "1"), Column("mfu_needed", f"{workload.mfu_name} needed", "%"),
        Column("usd_to_deadline", "USD to the deadline", "USD"), Column("days", "days at the MFU", "1"),
    )  # fmt: skip


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
