"""Options of ``ironlaw fleet``, and the fields of its file."""

from __future__ import annotations

from typing import Any

from ironlaw.errors import ValueRangeError
from ironlaw.question.kinds import kind
from ironlaw.question.options import OPTIONS as ESTIMATE
from ironlaw.question.options import Option
from ironlaw.question.readers import days, list_of, names, positive, switch, text, whole
from ironlaw.units import shorten

LONGEST_NAME = 40  # characters


@kind("str", gives="str", metavar="NAME")
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
    "on": Option(names, "accelerators of the reservation, by catalogue name: one pool each", "A[,B]", records="accelerators"),
    "gpus": Option(list_of(whole), "accelerators of each pool, in the order of --on", "N[,M]"),
    "racks": Option(list_of(whole), "racks (scale-up domains) of each pool: a job takes whole racks", "N[,M]"),
    "days": Option(days, "length of the reservation, in days", decided=f"{DAYS:g}"),
    "power_limit": Option(positive("W"), "most power of all running jobs, such as 1.5MW", "POWER", decided="none"),
    "counts": Option(switch, "add a table of every count that a job may have, with its time", decided="off"),
}
EXAMPLES = """\
  ironlaw fleet examples/quarter.toml
  ironlaw fleet examples/quarter.toml --days 60 --format csv:jobs
  ironlaw fleet examples/three-jobs.toml --on h100-sxm --gpus 512 --power-limit 600kW
"""

POOL_FIELDS: dict[str, Option] = {
    "name": Option(label, "name of the pool", "NAME", decided="its accelerator"),
    "on": ESTIMATE["on"],
    "gpus": ESTIMATE["gpus"].replace(says="accelerators of the pool", column=False),
    "racks": Option(whole, "racks (scale-up domains) of the pool: a job takes whole racks"),
    "power_limit": Option(positive("W"), "most power of the jobs that run in the pool", "POWER"),
    **{name: ESTIMATE[name] for name in ("node", "fabric", "price", "grid", "pue", "mttf")},
}
JOB_FIELDS: dict[str, Option] = {
    "name": Option(label, "name of the job", "NAME"),
    "deadline": Option(days, "latest end, in days from the start of the reservation", decided="its end"),
    "value": Option(positive("1"), "what it is worth that the job is done by its deadline", "X", decided="1"),
    "on": Option(names, "pools or accelerators that the job may use", "LIST", decided="all"),
    "gpus": Option(list_of(whole), "counts of accelerators that the job may have", "LIST", decided="round counts"),
}
FILE_FIELDS = ("days", "power_limit", "pool", "job")
