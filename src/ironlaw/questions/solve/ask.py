"""Accelerators, time, tokens, MFU and budget of a run: any one from the others, the least and the most kept apart.

The least number is what the work needs at its MFU, the most what the budget pays for; they are two answers. The MFU is predicted by
``estimate`` unless it is given. ``questions.checklist`` goes through the five steps of an estimate made by hand.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ironlaw import units
from ironlaw.errors import QuestionError, ValueRangeError
from ironlaw.question import options as known
from ironlaw.question.options import Option, duration, one_of, price, share, tokens, whole
from ironlaw.questions.answer import Answer, Column, Table, need, read

if TYPE_CHECKING:
    from ironlaw.questions.solve.job import Job


def days(value: Any, flag: str) -> float:
    """A time in days, or with its own unit."""
    try:
        return duration(f"{float(value)} days", flag)
    except (TypeError, ValueError):
        return duration(value, flag)


def money(value: Any, flag: str) -> float:
    """USD, such as 2M."""
    number = units.parse_count(str(value).removesuffix("USD").strip() if isinstance(value, str) else value, flag)
    if not 0 < number < 1e15:
        raise ValueRangeError(f"{flag} is {value}, must be more than 0 and below 1e15 USD")
    return number


UNKNOWNS = ("gpus", "time", "tokens", "mfu", "budget")
PASSED = (  # to estimate, as they are
    "precision", "global_batch_size", "global_batch_tokens", "seq_len", "micro_batch_size", "optimizer", "framework", "recompute",
    "tp", "sp", "pp", "zero", "overlap", "flash_attention",
)  # fmt: skip
OPTIONS: dict[str, Option] = {
    "model": known.OPTIONS["model"],
    "parameters": Option(tokens, "instead of MODEL: parameters such as 30B, 6 FLOP each; beside MODEL: its round count", "N"),
    "on": known.OPTIONS["on"],
    "solve_for": Option(one_of(UNKNOWNS), "what is asked: gpus, time, tokens, mfu, budget (default: what is not given)", "WHAT"),
    "gpus": Option(whole, "accelerators"),
    "deadline": Option(days, "time the run may take, in days or with a unit", "DAYS"),
    "tokens": Option(tokens, "tokens of the run, such as 2T", "TOKENS"),
    "mfu": Option(share, "model FLOPs utilisation, such as 0.45 (default: predicted)", "X"),
    "budget": Option(money, "what the run may cost, such as 2M", "USD"),
    "price": Option(price, "USD per accelerator hour, or provider/term (default: newest on-demand price)", "PRICE"),
    "work": Option(one_of(("model", "6n")), "FLOP of a token: the model's with attention, or 6 N (default: the model's)", "HOW"),
    "checkpoint_layers": Option(whole, "by hand: a checkpoint of activations every K layers (default: none)", "K"),
    **{name: known.OPTIONS[name] for name in PASSED},
}
DAY, HOUR = 86400.0, 3600.0


def solve(model: Any = None, on: str | None = None, *, catalog: tuple[str, ...] = (), **options: Any) -> Answer:
    """Any one of GPUs, time, tokens, MFU and budget: ``solve("llama-3-70b", on="h100-sxm", tokens="2T", deadline=60)``."""
    from ironlaw.catalog import load

    return ask({"model": model, "on": on, **options}, load.given_folders(catalog))


def ask(options: Mapping[str, Any], folders: tuple[str, ...] = ()) -> Answer:
    """The answer to options as the command line gives them."""
    from ironlaw.questions.compare.fewest import plan_words
    from ironlaw.questions.solve import five_steps
    from ironlaw.questions.solve.job import Job

    values = read(options, OPTIONS, "solve")
    need(values, "on")
    if "model" not in values and "parameters" not in values:
        raise QuestionError("the question lacks MODEL, or --parameters N")
    unknown = _unknown(values)
    job = Job.of(values, folders)
    solved = _SOLVERS[unknown](values, job)
    gpus = solved.pop("gpus", None)
    found = job.plan(gpus) if gpus else None
    mfu = values.get("mfu") or solved.get("mfu") or (job.predicted(gpus) if gpus else None)
    known = five_steps.numbers(values, job, found, gpus, mfu)
    solved["headline"] += _pace(job, gpus, mfu)
    if "mfu" in values and gpus:
        job.mfu(gpus, values["mfu"])  # a word where it is more than is predicted
    if found is not None and job.legal(found):
        if not found.fits[0]:
            solved["headline"].insert(0, f"no: {gpus:,.0f} GPUs do not hold the job, see step 1")
            solved["feasible"] = False
        solved["plan"] = plan_words(found)
        solved["headline"].append(f"plan: {solved['plan']}")
    feasible, said = solved.pop("feasible", True), [*solved.pop("headline")]
    return Answer(
        title=f"{job.title} on {values['on']}: {unknown}",
        headline=said,
        tables=[*_ways(values, job, solved, mfu), *five_steps.tables(known, gpus)],
        terms=job.terms,
        values={"solved_for": unknown, "gpus": gpus, **solved, "checks": known},
        assumptions=job.notes,
        warnings=list(dict.fromkeys(job.warnings)),
        feasible=feasible,
        folders=folders,
    )


def _unknown(values: dict[str, Any]) -> str:
    """What is asked: named, or the first of those that are not given."""
    has = {name: ("deadline" if name == "time" else name) in values for name in UNKNOWNS}
    asked = values.get("solve_for")
    if asked:
        if has[asked]:
            raise QuestionError(f"--solve-for {asked}, and {asked} is given: leave one of the two out")
        return str(asked)
    if all(has[name] for name in ("gpus", "time", "tokens", "mfu")):
        raise QuestionError("--gpus, --deadline, --tokens and --mfu decide each other: leave out what is asked")
    for name in UNKNOWNS:
        if not has[name]:
            return name
    raise AssertionError("one of the four is missing")


def _gpus(values: dict[str, Any], job: Job) -> dict[str, Any]:
    """The fewest for the deadline, the most for the budget."""
    need(values, "deadline")
    seconds, told = values["deadline"], []
    solved: dict[str, Any] = {"feasible": True}
    fewest = most = None
    if "tokens" in values:
        fewest = job.fewest(values["tokens"], seconds, values.get("mfu"))
        if fewest is None:
            told.append(f"no plan reaches {values['tokens'] / seconds:,.0f} tokens/s, which the deadline asks for")
            solved["feasible"] = False
        else:
            told.append(f"at least {fewest:,.0f} GPUs: {_rent(job, fewest, seconds, 'fewest')} for {seconds / DAY:.4g} days")
    if "budget" in values:
        most = float(job.leaf("most GPUs", "affordable_gpus", "1", budget=values["budget"], seconds=seconds).value)
        bought = job.leaf("GPU-hours of the budget", "gpu_hours", "h", gpus=most, seconds=seconds)
        if most < 1.0:
            told.insert(0, "no: the budget pays for less than one GPU until the deadline")
            solved["feasible"] = False
        told.append(f"at most {math.floor(most):,} GPUs: {bought.value:,.0f} GPU-hours for {values['budget']:,.0f} USD")
    if fewest is None and most is None and solved["feasible"]:
        raise QuestionError("the question lacks --tokens (for the fewest GPUs) or --budget (for the most)")
    if fewest is not None and most is not None and fewest > most:
        ends = _ends(values, job, fewest)
        if ends is None or ends[1] > values["budget"]:
            told.insert(0, "no: the budget pays for fewer GPUs than the deadline needs")
            solved["feasible"] = False
        else:
            told.append(f"the fewest end before the deadline, within the budget: {ends[1]:,.0f} USD for {ends[0] / DAY:.4g} days")
            solved |= {"run_days": ends[0] / DAY, "run_usd": ends[1]}
    gpus = fewest if fewest is not None else math.floor(most or 0)
    return solved | {"headline": told, "min_gpus": fewest, "max_gpus": most, "gpus": gpus or None}


def _ends(values: dict[str, Any], job: Job, gpus: float) -> tuple[float, float] | None:
    """Seconds and cost of the run where accelerators are given back when it ends, not at the deadline; None: no MFU is known."""
    mfu = values.get("mfu") or job.predicted(gpus)
    if not mfu:
        return None
    seconds = job.seconds(values["tokens"], gpus, mfu)
    return seconds, _cost(job, gpus, seconds, "rent to the end of the run")


def _time(values: dict[str, Any], job: Job) -> dict[str, Any]:
    """The shortest by the MFU, the longest by the budget; without tokens, the rate alone."""
    need(values, "gpus")
    gpus, solved = values["gpus"], {"feasible": True, "gpus": values["gpus"]}
    mfu = job.mfu(gpus, values.get("mfu"))
    told = []
    if "budget" in values:
        longest = job.leaf("longest time", "affordable_time", "s", budget=values["budget"], gpus=gpus).value
        told.append(f"the budget holds {gpus:,.0f} GPUs for at most {longest / DAY:.4g} days")
        solved["max_days"] = float(longest / DAY)
    if "tokens" in values and mfu:
        shortest = job.seconds(values["tokens"], gpus, mfu)
        told.insert(0, f"at least {shortest / DAY:.4g} days: {_rent(job, gpus, shortest, 'shortest')} for {gpus:,.0f} GPUs")
        solved["min_days"] = shortest / DAY
        if solved.get("max_days", math.inf) < solved["min_days"]:
            told.insert(0, "no: the budget ends before the run does")
            solved["feasible"] = False
    return solved | {"headline": told, "mfu": mfu}


def _tokens(values: dict[str, Any], job: Job) -> dict[str, Any]:
    """The most that the time is enough for, and the most that the budget pays for."""
    need(values, "gpus")
    gpus = values["gpus"]
    mfu = job.mfu(gpus, values.get("mfu"))
    limits = {}
    if "deadline" in values:
        limits["deadline"] = values["deadline"]
    if "budget" in values:
        limits["budget"] = float(job.leaf("longest time", "affordable_time", "s", budget=values["budget"], gpus=gpus).value)
    if not limits:
        raise QuestionError("the question lacks --deadline or --budget")
    most = {
        name: float(
            job.leaf(
                f"most tokens by {name}",
                "tokens_done",
                "token",
                gpus=gpus,
                seconds=seconds,
                peak=job.peak,
                efficiency=mfu,
                flop_per_token=job.flop.value,
            ).value
        )
        for name, seconds in limits.items()
    }
    told = [f"at most {units.show(amount, 'token', 4)} by the {name}" for name, amount in sorted(most.items(), key=lambda x: x[1])]
    return {"headline": told, "gpus": gpus, "mfu": mfu, "max_tokens": min(most.values()), "max_tokens_by": most}


def _mfu(values: dict[str, Any], job: Job) -> dict[str, Any]:
    """What the deadline asks for, what the budget asks for, and what is predicted."""
    need(values, "tokens", "gpus")
    gpus, work = values["gpus"], job.work(values["tokens"])
    needed = {}
    if "deadline" in values:
        needed["deadline"] = float(
            job.leaf("MFU the deadline needs", "mfu", "1", model_flop=work, seconds=values["deadline"], gpus=gpus, peak=job.peak).value
        )
        job.leaf("rate the deadline needs", "mfu", "FLOP/s", model_flop=work, seconds=values["deadline"], gpus=1.0, peak=1.0)
    if "budget" in values:
        held = float(job.leaf("longest time", "affordable_time", "s", budget=values["budget"], gpus=gpus).value)
        needed["budget"] = float(
            job.leaf("MFU the budget needs", "mfu", "1", model_flop=work, seconds=held, gpus=gpus, peak=job.peak).value
        )
    if not needed:
        raise QuestionError("the question lacks --deadline or --budget: what the MFU is to be enough for")
    predicted = job.predicted(gpus)
    least = max(needed.values())
    told = [f"at least {share:.2%} MFU to keep to the {name}" for name, share in needed.items()]
    if predicted:
        told.append(f"estimate predicts {predicted:.1%}: {'enough' if predicted >= least else 'not enough'}")
    if least > 1.0:
        told.insert(0, f"no: {least:.0%} of the peak is asked for")
    return {
        "headline": told,
        "gpus": gpus,
        "mfu": predicted,
        "min_mfu": least,
        "min_mfu_by": needed,
        "predicted_mfu": predicted,
        "feasible": least <= (predicted or 1.0),
    }


def _budget(values: dict[str, Any], job: Job) -> dict[str, Any]:
    """What the work costs at its MFU; and what holding the accelerators to the deadline costs."""
    need(values, "gpus", "tokens")
    gpus = values["gpus"]
    mfu = job.mfu(gpus, values.get("mfu"))
    shortest = job.seconds(values["tokens"], gpus, mfu)
    least = _cost(job, gpus, shortest, "least budget")
    told = [f"at least {least:,.0f} USD: {gpus:,.0f} GPUs for {shortest / DAY:.4g} days"]
    solved: dict[str, Any] = {"gpus": gpus, "mfu": mfu, "min_usd": least, "min_days": shortest / DAY, "feasible": True}
    if "deadline" in values:
        solved["max_usd"] = _cost(job, gpus, values["deadline"], "budget to the deadline")
        told.append(f"{solved['max_usd']:,.0f} USD where they are held to the deadline")
        if shortest > values["deadline"]:
            told.insert(0, f"no: the run takes {shortest / DAY:.4g} days, the deadline is {values['deadline'] / DAY:.4g}")
            solved["feasible"] = False
    return solved | {"headline": told}


_SOLVERS = {"gpus": _gpus, "time": _time, "tokens": _tokens, "mfu": _mfu, "budget": _budget}


def _cost(job: Job, gpus: float, seconds: float, name: str) -> float:
    return float(job.leaf(name, "rental", "USD", gpus=gpus, seconds=seconds).value)


def _rent(job: Job, gpus: float, seconds: float, what: str) -> str:
    return f"{_cost(job, gpus, seconds, f'rent of the {what}'):,.0f} USD"


def _pace(job: Job, gpus: float | None, mfu: float | None) -> list[str]:
    """Tokens a second and the time of a step at a count and an MFU."""
    if not gpus or not mfu:
        return []
    rate = job.rate(gpus, mfu)
    text = f"{gpus:,.0f} GPUs at {mfu:.1%} MFU train on {rate:,.0f} tokens/s"
    step = job.step_by_hand(gpus, mfu)
    return [text + (f", a step of {job.batch:,.0f} tokens takes {units.show(step, 's', 3)}" if step else "")]


def _ways(values: dict[str, Any], job: Job, solved: dict[str, Any], mfu: float | None) -> list[Table]:
    """Counts between the fewest and the most: the MFU each needs, its time and its cost."""
    from ironlaw.questions.compare.fewest import rounded_down

    counts: dict[str, float] = {}
    if solved.get("min_gpus"):
        counts["the fewest"] = solved["min_gpus"]
    if solved.get("max_gpus"):
        counts["the most"] = math.floor(solved["max_gpus"])
        counts |= rounded_down(solved["max_gpus"], job.node)
    seconds, work = values.get("deadline"), values.get("tokens")
    rows = []
    for name, gpus in counts.items():
        row: dict[str, Any] = {"way": name, "gpus": gpus}
        if seconds:
            row["usd_to_deadline"] = _cost(job, gpus, seconds, f"rent of {gpus:.0f} to the deadline")
            if work:
                row["mfu_needed"] = job.mfu_needed(work, gpus, seconds)
        if mfu and work and gpus:
            row["days"] = job.seconds(work, gpus, mfu) / DAY
        rows.append(row)
    columns = (
        Column("way", "count"),
        Column("gpus", "GPUs", "1"),
        Column("mfu_needed", "MFU needed", "%"),
        Column("usd_to_deadline", "USD to the deadline", "USD"),
        Column("days", "days at the MFU", "1"),
    )
    return [Table("ways", "Counts to choose from", columns, rows)]
