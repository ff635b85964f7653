"""What would meet the deadlines that a schedule misses: the fewest more accelerators of a pool, or one job less."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from ironlaw.questions.answer import Column
from ironlaw.questions.fleet.rates import Rates
from ironlaw.questions.fleet.schedule import Limits, Task, schedule

NODES, TRIALS = 15_000, 1_500  # of the search of each remedy
STEPS = 16  # parts of a pool that are added one by one
MOST = 2.0  # times a pool: more is not tried
REMEDIES = (
    Column("remedy", "remedy"), Column("gpus", "GPUs more", "1"), Column("share", "more", "%"), Column("lost_value", "value lost", "1"),
)  # fmt: skip

TasksOf = Callable[[float], list[Task]]  # with pools of so many times their accelerators


def remedies(rates: Rates, tasks_of: TasksOf, limits: Limits) -> list[dict[str, Any]]:
    """What would meet every deadline, each alone: no limit of power, one job less, more accelerators of one pool."""
    rows: list[dict[str, Any]] = []
    tasks = tasks_of(1.0)
    if math.isfinite(limits.power) or any(map(math.isfinite, limits.pool_power)):
        free = Limits(limits.capacity, (math.inf,) * len(limits.capacity))
        if _meets(tasks, free):
            rows.append({"remedy": "no limit of power", "lost_value": 0.0})
    rows += _one_less(rates, tasks, limits)
    rows += [row for pool in range(len(limits.capacity)) if (row := _more(rates, tasks_of, limits, pool)) is not None]
    return rows


def _meets(tasks: Sequence[Task], limits: Limits) -> bool:
    """True where a schedule that meets every deadline is found."""
    return schedule(tasks, limits, NODES, TRIALS).score.missed == 0.0


def _one_less(rates: Rates, tasks: Sequence[Task], limits: Limits) -> list[dict[str, Any]]:
    """The job of least value without which all others meet their deadlines."""
    for at in sorted(range(len(tasks)), key=lambda at: (tasks[at].value, at)):
        if len(tasks) > 1 and _meets([task for other, task in enumerate(tasks) if other != at], limits):
            return [{"remedy": f"without the job {rates.reservation.jobs[at].name}", "lost_value": tasks[at].value}]
    return []


def _more(rates: Rates, tasks_of: TasksOf, limits: Limits, pool: int) -> dict[str, Any] | None:
    """The fewest more accelerators of a pool, in steps, that meet every deadline; None where twice as many do not."""
    now, jobs = limits.capacity[pool], rates.reservation.jobs
    node = rates.unit_of(pool)
    step = max(math.ceil(now / STEPS / node), 1) * node
    low, high = 0, math.floor((MOST - 1.0) * now / step)
    tasks = tasks_of(MOST)

    def enough(steps: int) -> bool:
        capacity = tuple(size + steps * step * (at == pool) for at, size in enumerate(limits.capacity))
        return _meets(tasks, Limits(capacity, limits.pool_power, limits.power))

    if not any(pool in job.pools for job in jobs) or high < 1 or not enough(high):
        return None
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if enough(middle) else (middle, high)
    more = high * step
    name = rates.reservation.pools[pool].name
    return {"remedy": f"{more:,.0f} more accelerators in {name}", "gpus": more, "share": more / now, "lost_value": 0.0}
