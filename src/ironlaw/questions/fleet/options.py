"""Options of ``ironlaw fleet``, and the fields of its file."""

from __future__ import annotations

from typing import Any

from ironlaw.errors import ValueRangeError
from ironlaw.question.options import OPTIONS as ESTIMATE
from ironlaw.question.options import Option, positive, switch, text, whole
from ironlaw.question.readers import days, list_of, names
from ironlaw.units import shorten

LONGEST_NAME = 40  # characters


def label(value: Any, flag: str) -> str:
    """Read the name of a job or a pool: one line that is not long, as it stands in tables and in the chart."""
    name = text(value, flag)
    if len(name) > LONGEST_NAME or not name.isprintable():
        raise ValueRangeError(f"{flag} is {shorten(name)!r}, must be at most {LONGEST_NAME} printable characters")
    return name


ARGUMENTS = ("jobs",)  # arguments instead of MODEL
DAYS = 90.0  # of a reservation: a quarter
MOST_JOBS, MOST_POOLS = 24, 6

OPTIONS: dict[str, Option] = {
    "jobs": Option(text, "TOML file of jobs, and of pools where --on gives none", "JOBS.toml"),
    "on": Option(names, "accelerators of the reservation, by catalogue name: one pool each", "A[,B]"),
    "gpus": Option(list_of(whole), "accelerators of each pool, in the order of --on", "N[,M]"),
    "racks": Option(list_of(whole), "racks (scale-up domains) of each pool: a job takes whole racks", "N[,M]"),
    "days": Option(days, f"length of the reservation, in days (default: {DAYS:g})", "DAYS"),
    "power_limit": Option(positive("W"), "most power of all running jobs, such as 1.5MW (default: none)", "POWER"),
    "counts": Option(switch, "add a table of every count that a job may have, with its time (default: off)", "on|off"),
}
EXAMPLES = """\
  ironlaw fleet examples/quarter.toml
  ironlaw fleet examples/quarter.toml --days 60 --format csv:jobs
  ironlaw fleet examples/three-jobs.toml --on h100-sxm --gpus 512 --power-limit 600kW
"""

POOL_FIELDS: dict[str, Option] = {
    "name": Option(label, "name of the pool (default: its accelerator)", "NAME"),
    "on": ESTIMATE["on"],
    "gpus": ESTIMATE["gpus"].replace(help="accelerators of the pool", column=False),
    "racks": Option(whole, "racks (scale-up domains) of the pool: a job takes whole racks", "N"),
    "power_limit": Option(positive("W"), "most power of the jobs that run in the pool", "POWER"),
    **{name: ESTIMATE[name] for name in ("node", "fabric", "price", "grid", "pue", "mttf")},
}
JOB_FIELDS: dict[str, Option] = {
    "name": Option(label, "name of the job", "NAME"),
    "deadline": Option(days, "latest end, in days from the start of the reservation (default: its end)", "DAYS"),
    "value": Option(positive("1"), "what it is worth that the job is done by its deadline (default: 1)", "X"),
    "on": Option(names, "pools or accelerators that the job may use (default: all)", "LIST"),
    "gpus": Option(list_of(whole), "counts of accelerators that the job may have (default: round counts)", "LIST"),
}
FILE_FIELDS = ("days", "power_limit", "pool", "job")
