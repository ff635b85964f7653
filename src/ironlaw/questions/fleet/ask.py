"""Answer ``ironlaw fleet``: a schedule of several runs on one reservation, what stays idle, and what would meet missed deadlines."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from ironlaw import units
from ironlaw.cautions.record import Caution, Sentence, only
from ironlaw.cautions.table import caution
from ironlaw.errors import MissingOptionError
from ironlaw.estimate.answer.estimate import Estimate
from ironlaw.law import cost
from ironlaw.progress import steps
from ironlaw.question.assumptions import Assumptions, assume
from ironlaw.questions.answer import Answer, Column, Table, filled_columns
from ironlaw.questions.fleet.gantt import Bar, chart
from ironlaw.questions.fleet.rates import Rates, Run, row_of
from ironlaw.questions.fleet.read import DAY, Reservation, read_reservation
from ironlaw.questions.fleet.remedies import REMEDIES, remedies
from ironlaw.questions.fleet.schedule import Limits, Placed, Schedule, Task, schedule
from ironlaw.questions.plan_words import describe_plan
from ironlaw.terms import Term, scalar

JOBS = (
    Column("job", "job"), Column("model", "model"), Column("pool", "pool"), Column("gpus", "GPUs", "1"),
    Column("held_gpus", "GPUs held", "1"), Column("start", "start", "s"), Column("end", "end", "s"), Column("deadline", "deadline", "s"),
    Column("met", "in time"), Column("value", "value", "1"), Column("tokens_per_second", "tokens/s", "1"), Column("usd", "cost", "USD"),
    Column("joules", "energy", "J"), Column("watts", "power", "W"), Column("plan", "plan"),
)  # fmt: skip
POOLS = (
    Column("pool", "pool"), Column("accelerator", "accelerator"), Column("gpus", "GPUs", "1"), Column("usd_per_hour", "USD/h each", "USD"),
    Column("reserved_gpu_hours", "GPU-hours", "1"), Column("used_gpu_hours", "used", "1"), Column("idle_gpu_hours", "idle", "1"),
    Column("idle_share", "idle", "%"), Column("idle_usd", "idle", "USD"), Column("usd", "reservation", "USD"),
)  # fmt: skip
COUNTS = (
    Column("job", "job"), Column("pool", "pool"), Column("gpus", "GPUs", "1"), Column("held_gpus", "GPUs held", "1"),
    Column("tokens_per_second", "tokens/s", "1"), Column("seconds", "run", "s"), Column("gpu_hours", "GPU-hours", "1"),
    Column("watts", "power", "W"),
)  # fmt: skip


class Fleet:
    """The question, its runs and its schedule."""

    def __init__(self, reservation: Reservation, folders: tuple[str, ...]) -> None:
        self.reservation, self.folders = reservation, folders
        self.rates = Rates(reservation, folders)
        pools = reservation.pools
        self.limits = Limits(
            tuple(size.gpus for size in self.rates.sizes),
            tuple(math.inf if pool.power_limit is None else pool.power_limit for pool in pools),
            math.inf if reservation.power_limit is None else reservation.power_limit,
        )
        self.found: Schedule = schedule(self.tasks(), self.limits)

    def deadline(self, job: int) -> float:
        """The latest end of a job [s]: its deadline, and the end of the reservation."""
        given = self.reservation.jobs[job].deadline
        return self.reservation.seconds if given is None else min(given, self.reservation.seconds)

    def tasks(self, more: float = 1.0) -> list[Task]:
        """The jobs as the schedule sees them, on pools of ``more`` times their accelerators."""
        found = []
        for at, job in enumerate(steps(self.reservation.jobs, "jobs")):
            runs = [*self.rates.runs(at), *(self.rates.runs(at, more) if more > 1.0 else ())]
            found.append(Task(tuple(dict.fromkeys(run.mode for run in runs)), self.deadline(at), job.value))
        return found

    def run(self, placed: Placed) -> Run:
        """The run of a job in the schedule."""
        return next(run for run in self.rates.runs(placed.task) if run.mode == placed.mode)

    @property
    def late(self) -> list[int]:
        """The jobs that end after their deadline, and those that no pool holds."""
        return [one.task for one in self.found.placed if one.end > self.deadline(one.task) * (1.0 + 1e-9)] + list(self.found.left_out)

    def peak(self) -> float:
        """The most power that the running jobs draw together."""
        starts = [one.start for one in self.found.placed]
        at = [sum(one.mode.power for one in self.found.placed if one.start <= time < one.end) for time in starts]
        return max(at, default=0.0)


def ask(values: dict[str, Any], folders: tuple[str, ...] = ()) -> Answer:
    """Answer a question about several jobs; QuestionError where the file or the options are wrong."""
    if "jobs" not in values:
        raise MissingOptionError("missing JOBS.toml, the file of jobs")
    fleet = Fleet(read_reservation(values, folders), folders)
    jobs = [_job_row(fleet, one) for one in fleet.found.placed] + [_left_out_row(fleet, at) for at in fleet.found.left_out]
    pools = [_pool_row(fleet, at) for at in range(len(fleet.reservation.pools))]
    runs = [run for at in range(len(fleet.reservation.jobs)) for run in fleet.rates.runs(at)]
    counts = [row_of(run, fleet.reservation.jobs, fleet.reservation.pools) for run in runs]
    help_ = remedies(fleet.rates, fleet.tasks, fleet.limits) if fleet.late else []
    lines = [{"line": line} for line in _chart(fleet)]
    heading = Column("line", f"= runs, ! deadline, | end of the reservation ({fleet.reservation.seconds / DAY:g} days)")
    tables = [
        Table("jobs", "Schedule, in the order of the starts", _columns(JOBS, jobs), jobs),
        Table("plot", "Chart", (heading,), lines),
        Table("pools", "The reservation", filled_columns(POOLS, pools), pools),
        Table("remedies", "What would meet every deadline, each alone", filled_columns(REMEDIES, help_), help_),
    ]
    if values.get("counts"):
        tables.append(Table("counts", "The counts that each job may have", _columns(COUNTS, counts), counts))
    return Answer(
        title=_title(fleet),
        headline=_headline(fleet, pools, help_),
        tables=tables,
        terms=_terms(fleet),
        values={
            "end": fleet.found.score.end, "least_end": fleet.found.bound, "exact": fleet.found.exact,
            "missed_value": fleet.found.score.missed, "peak_watts": fleet.peak(), "seconds": fleet.reservation.seconds,
            "power_limit_watts": fleet.reservation.power_limit,
        },
        assumptions=_assumptions(fleet, values),
        warnings=_warnings(fleet),
        feasible=not fleet.late,
        folders=folders,
    )  # fmt: skip


def _columns(columns: Sequence[Column], rows: Sequence[Mapping[str, Any]]) -> tuple[Column, ...]:
    """The columns that have a value; what a job holds only where it holds more than it uses."""
    same = all(row.get("held_gpus") == row.get("gpus") for row in rows)
    return tuple(column for column in filled_columns(columns, rows) if not (same and column.key == "held_gpus"))


def _title(fleet: Fleet) -> str:
    pools = ", ".join(f"{size.gpus:,.0f} {pool.on}" for size, pool in zip(fleet.rates.sizes, fleet.reservation.pools, strict=True))
    return f"{len(fleet.reservation.jobs)} jobs on {pools} for {fleet.reservation.seconds / DAY:g} days"


def _job_row(fleet: Fleet, one: Placed) -> dict[str, Any]:
    """One job of the schedule."""
    run, job = fleet.run(one), fleet.reservation.jobs[one.task]
    whole = run.group.run
    assert whole is not None
    usd = scalar(whole.usd_with_failures)
    return {
        "job": job.name, "model": run.group.job.model.title, "pool": fleet.reservation.pools[run.pool].name, "gpus": run.used.gpus,
        "held_gpus": run.held, "start": one.start, "end": one.end,
        "deadline": job.deadline, "met": one.task not in fleet.late, "value": job.value,
        "tokens_per_second": run.used.rate, "usd": None if math.isnan(usd) else usd, "joules": scalar(whole.joules_with_failures),
        "watts": run.power, "plan": describe_plan(Estimate((run.group,), 1, fleet.folders)),
    }  # fmt: skip


def _left_out_row(fleet: Fleet, at: int) -> dict[str, Any]:
    job = fleet.reservation.jobs[at]
    return {"job": job.name, "deadline": job.deadline, "met": False, "value": job.value, "plan": "no plan keeps to the limits"}


def _pool_row(fleet: Fleet, at: int) -> dict[str, Any]:
    """What of a pool is used until the end of the reservation, and what stays idle."""
    size, pool, days = fleet.rates.sizes[at], fleet.reservation.pools[at], fleet.reservation.seconds
    inside = [(one, min(one.end, days) - min(one.start, days)) for one in fleet.found.placed if one.mode.pool == at]
    reserved = float(cost.gpu_hours(size.gpus, days))
    used = math.fsum(fleet.run(one).used.gpus * seconds / 3600.0 for one, seconds in inside)
    price = fleet.rates.price(at)
    known = not math.isnan(price)
    return {
        "pool": pool.name, "accelerator": pool.on, "gpus": size.gpus, "usd_per_hour": price * 3600.0 if known else None,
        "reserved_gpu_hours": reserved, "used_gpu_hours": used, "idle_gpu_hours": reserved - used, "idle_share": 1.0 - used / reserved,
        "idle_usd": float(cost.rental(1.0, (reserved - used) * 3600.0, price)) if known else None,
        "usd": float(cost.rental(size.gpus, days, price)) if known else None,
    }  # fmt: skip


def _chart(fleet: Fleet) -> list[str]:
    bars = []
    for one in fleet.found.placed:
        run, job = fleet.run(one), fleet.reservation.jobs[one.task]
        where = f"{run.used.gpus:,.0f} {fleet.reservation.pools[run.pool].name}"
        bars.append(Bar(job.name, where, one.start / DAY, one.end / DAY, None if job.deadline is None else job.deadline / DAY))
    return chart(bars, fleet.reservation.seconds / DAY)


def _headline(fleet: Fleet, pools: Sequence[Mapping[str, Any]], help_: Sequence[Mapping[str, Any]]) -> list[str]:
    """Who is late, when the last job ends, how good the schedule is, what is idle, what it draws."""
    found, jobs = fleet.found, fleet.reservation.jobs
    names = ", ".join(jobs[at].name for at in sorted(fleet.late))
    lines: list[str] = [Sentence("every job is done by its deadline", "deadlines-met")]
    if fleet.late:
        miss = "misses its deadline" if len(fleet.late) == 1 else "miss their deadlines"
        told = {"late": [jobs[at].name for at in sorted(fleet.late)], "jobs": len(jobs)}
        lines = [Sentence(f"no: {len(fleet.late)} of {len(jobs)} jobs {miss}: {names}", "deadlines-missed", told)]
    if help_:
        ways = [row["remedy"] for row in help_]
        lines.append(Sentence(f"what would meet every deadline: {'; or '.join(ways)}", "remedies", {"remedies": ways}))
    if fleet.late and not help_:
        lines.append(Sentence("neither one job less nor twice the accelerators of a pool meets every deadline", "no-remedy"))
    if found.placed:
        starts = f"first {_starts(fleet)}; the last job ends on day {found.score.end / DAY:,.1f}"
        lines.append(Sentence(starts, "order", {"end_seconds": found.score.end}))
        lines.append(Sentence(_quality(found), "quality", {"exact": found.exact}))
        lines.append(Sentence(_cost(fleet), "cost"))
    hours = sum(row["idle_gpu_hours"] for row in pools)
    share = hours / sum(row["reserved_gpu_hours"] for row in pools)
    usd = [row["idle_usd"] for row in pools]
    paid = "" if None in usd else f", {sum(usd):,.0f} of {sum(row['usd'] for row in pools):,.0f} USD"
    idle = f"idle: {hours:,.0f} accelerator hours, {share:.1%} of the reservation{paid}"
    lines.append(Sentence(idle, "idle", {"gpu_hours": hours, "share": share}))
    limit = fleet.reservation.power_limit
    of_limit = "" if limit is None else f" of {units.show(limit, 'W')}"
    power = f"running jobs draw at most {units.show(fleet.peak(), 'W')}{of_limit}"
    lines.append(Sentence(power, "power", {"watts": fleet.peak(), "limit_watts": limit}))
    return lines


def _cost(fleet: Fleet) -> str:
    """Cost and energy of all runs."""
    usd, joules = 0.0, 0.0
    for one in fleet.found.placed:
        run = fleet.run(one).group.run
        assert run is not None
        usd += scalar(run.usd_with_failures)
        joules += scalar(run.joules_with_failures)
    return f"the runs take {units.show(joules, 'J')}" + ("" if math.isnan(usd) else f" and cost {usd:,.0f} USD")


def _starts(fleet: Fleet) -> str:
    """The jobs that start at once, and then the others."""
    words = []
    for one in fleet.found.placed:
        run, name = fleet.run(one), fleet.reservation.jobs[one.task].name
        words.append(
            f"{name} on {run.used.gpus:,.0f} {fleet.reservation.pools[run.pool].name}"
            + (f" (day {one.start / DAY:,.1f})" if one.start else "")
        )
    return ", ".join(words)


def _quality(found: Schedule) -> str:
    """How far the schedule may be from the best."""
    if found.exact:
        return "exact: with these counts no schedule misses less value, and of those that miss as little none ends earlier"
    over = found.score.end / found.bound - 1.0
    return (
        f"found by a search that was cut off: no schedule of these counts ends before day {found.bound / DAY:,.1f};"
        f" this one ends {over:.1%} later, and a better one may exist"
    )


def _terms(fleet: Fleet) -> list[Term]:
    """The terms of the time, the cost and the power of every job, with its name."""
    found = []
    for one in fleet.found.placed:
        group, name = fleet.run(one).group, fleet.reservation.jobs[one.task].name
        assert group.run is not None
        terms = (group.throughput["tokens_per_second"], group.run.failures.seconds, group.run.usd_with_failures, group.run.power)
        found += [term.named(f"{name} {term.name}") for term in terms]
    return found


def _assumptions(fleet: Fleet, values: Mapping[str, Any]) -> Assumptions:
    """What every job assumes, with its name; a thing that all assume alike only once."""
    listed: Assumptions = []
    if "days" not in values:
        assume(listed, "days", f"{fleet.reservation.seconds / DAY:g}", "default")
    by_job = [(job.name, fleet.rates.assumptions(at)) for at, job in enumerate(fleet.reservation.jobs)]
    by_job = [(name, [note for note in notes if note["origin"] == "default"]) for name, notes in by_job if notes]
    shared = [note for note in by_job[0][1] if all(note in notes for _, notes in by_job)] if by_job else []
    listed += shared
    for name, notes in by_job:
        listed += [{**note, "name": f"{name} {note['name']}"} for note in notes if note not in shared and note["name"] != "price"]
    for at, job in enumerate(fleet.reservation.jobs):
        if not {"global_batch_size", "global_batch_tokens"} & set(job.options) and at in fleet.rates.batches:
            assume(listed, f"{job.name} global_batch_size", f"{fleet.rates.batches[at]:g} at every count", "default")
    return listed


def _warnings(fleet: Fleet) -> list[Caution]:
    """What the schedule leaves out, and jobs that are late."""
    warnings = [caution("fleet-keeps-accelerators")]
    for one in fleet.found.placed:
        warnings += [line.within(fleet.reservation.jobs[one.task].name) for line in only(fleet.run(one).group.warnings, "left-out")]
    return warnings
