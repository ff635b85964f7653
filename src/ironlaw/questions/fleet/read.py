"""Read a file of jobs and pools; an error names the file, the job or pool, the field and the nearest names."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ironlaw.catalog import load
from ironlaw.errors import QuestionError, UnknownNameError
from ironlaw.files import read_toml
from ironlaw.question.options import OPTIONS as ESTIMATE
from ironlaw.question.options import Option
from ironlaw.question.read import is_column, read_options
from ironlaw.questions.fleet.options import DAYS, FILE_FIELDS, JOB_FIELDS, LONGEST_NAME, MOST_JOBS, MOST_POOLS, OPTIONS, POOL_FIELDS

DAY = 86400.0
OF_POOL = frozenset(POOL_FIELDS) - JOB_FIELDS.keys()  # options of an estimate that a pool gives


@dataclass(frozen=True)
class Pool:
    """Accelerators of one kind in the reservation."""

    name: str
    options: Mapping[str, Any]  # of an estimate: accelerator, node, price, ...
    gpus: float | None
    racks: float | None
    power_limit: float | None

    @property
    def on(self) -> str:
        """The accelerator."""
        return str(self.options["on"])


@dataclass(frozen=True)
class Job:
    """One training run of the file."""

    name: str
    options: Mapping[str, Any]  # of an estimate, without the machine
    deadline: float | None  # seconds
    value: float
    pools: tuple[int, ...]  # that it may use
    counts: tuple[float, ...]  # that it may have; none: round counts


@dataclass(frozen=True)
class Reservation:
    """The jobs and the pools of a question."""

    jobs: tuple[Job, ...]
    pools: tuple[Pool, ...]
    seconds: float
    power_limit: float | None


def read_reservation(values: Mapping[str, Any], folders: tuple[str, ...]) -> Reservation:
    """The jobs of the file on the pools of the options, or of the file."""
    path = Path(os.path.expanduser(values["jobs"]))
    table = read_toml(path, "a file of jobs")
    where = path.name
    for name in table:
        if name not in FILE_FIELDS:
            raise UnknownNameError(f"field of {where}", name, FILE_FIELDS)
    file = {name: OPTIONS[name].read(table[name], f"{name} in {where}") for name in ("days", "power_limit") if name in table}
    pools = _pools_of_options(values, folders) if "on" in values else _pools_of_file(table, where, folders)
    for name in ("gpus", "racks"):
        if name in values and "on" not in values:
            raise QuestionError(f"--{name} needs --on: the pools of {where} have their own {name}")
    if "on" in values and "pool" in table:
        raise QuestionError(f"give the pools by --on or in {where}, not both: leave --on out")
    listed = _tables(table, "job", where, MOST_JOBS)
    jobs = tuple(_read_job(one, place, where, pools, folders) for place, one in enumerate(listed, 1))
    _refuse_twice("job", [job.name for job in jobs], where)
    seconds = values.get("days", file.get("days", DAYS * DAY))
    return Reservation(jobs, pools, seconds, values.get("power_limit", file.get("power_limit")))


def _tables(table: Mapping[str, Any], kind: str, where: str, most: int) -> list[Mapping[str, Any]]:
    """The [[job]] or [[pool]] tables of a file."""
    listed = table.get(kind, [])
    if not isinstance(listed, list) or not all(isinstance(one, Mapping) for one in listed):
        raise QuestionError(f"{where}: {kind} must be written as [[{kind}]], one table for each")
    if not listed:
        raise QuestionError(f"{where} has no [[{kind}]]" + ("; give --on and --gpus, or a [[pool]]" if kind == "pool" else ""))
    if len(listed) > most:
        raise QuestionError(f"{where} has {len(listed)} tables [[{kind}]], must be at most {most}")
    return listed


def _read_fields(table: Mapping[str, Any], fields: Mapping[str, Option], known: Mapping[str, Option], where: str) -> dict[str, Any]:
    """The values of the own fields of a job or a pool; an unknown field is refused with the nearest of all known ones."""
    for name in table:
        if name.replace("-", "_") not in known:
            raise UnknownNameError("field", name, known, where)
    named = {name.replace("-", "_"): value for name, value in table.items()}
    return {name: fields[name].read(value, f"{name} in {where}") for name, value in named.items() if name in fields}


def _name_of(table: Mapping[str, Any], kind: str, place: int) -> str:
    name = table.get("name")
    return f"{kind} {name!r}" if isinstance(name, str) and len(name) <= LONGEST_NAME else f"{kind} {place}"


def _read_job(table: Mapping[str, Any], place: int, where: str, pools: tuple[Pool, ...], folders: tuple[str, ...]) -> Job:
    """One job."""
    where = f"{where}, {_name_of(table, 'job', place)}"
    known = {name: option for name, option in ESTIMATE.items() if name not in OF_POOL} | JOB_FIELDS
    own = _read_fields(table, JOB_FIELDS, known, where)
    given = {name.replace("-", "_"): value for name, value in table.items() if name.replace("-", "_") not in JOB_FIELDS}
    for name in ("name", "model", "tokens"):
        if name not in given and name not in own:
            raise QuestionError(f"{where}: missing {name}")
    options = read_options(given, where)
    for name, value in options.items():
        if is_column(value) and ESTIMATE[name].column:
            raise QuestionError(f"{name} in {where} has several values: a job has one")
    return Job(own["name"], options, own.get("deadline"), own.get("value", 1.0), _pools_of(own.get("on"), pools, where, folders),
               tuple(sorted(set(own.get("gpus", ())))))  # fmt: skip


def _pools_of(allowed: tuple[str, ...] | None, pools: tuple[Pool, ...], where: str, folders: tuple[str, ...]) -> tuple[int, ...]:
    """The pools that a job may use: all, or those that it names by their name or their accelerator."""
    if allowed is None:
        return tuple(range(len(pools)))
    found: list[int] = []
    for name in allowed:
        try:
            full = load.resolve("accelerators", name, folders)
        except UnknownNameError:  # the name of a pool
            full = name
        here = [at for at, pool in enumerate(pools) if name == pool.name or full == pool.on]
        if not here:
            raise UnknownNameError(
                "pool or accelerator", name, {pool.name for pool in pools} | {pool.on for pool in pools}, f"on in {where}"
            )
        found += [at for at in here if at not in found]
    return tuple(sorted(found))


def _pools_of_file(table: Mapping[str, Any], where: str, folders: tuple[str, ...]) -> tuple[Pool, ...]:
    pools = []
    for place, one in enumerate(_tables(table, "pool", where, MOST_POOLS), 1):
        here = f"{where}, {_name_of(one, 'pool', place)}"
        own = _read_fields(one, POOL_FIELDS, POOL_FIELDS, here)
        if "on" not in own:
            raise QuestionError(f"{here}: missing on, the accelerator")
        if not {"gpus", "racks"} & own.keys():
            raise QuestionError(f"{here}: missing gpus, or racks")
        pools.append(_make_pool(own, folders))
    _refuse_twice("pool", [pool.name for pool in pools], where)
    return tuple(pools)


def _pools_of_options(values: Mapping[str, Any], folders: tuple[str, ...]) -> tuple[Pool, ...]:
    on = values["on"]
    if not {"gpus", "racks"} & set(values):
        raise QuestionError("--on needs --gpus N, or --racks N: the size of the pool")
    for name in ("gpus", "racks"):
        if name in values and len(values[name]) != len(on):
            raise QuestionError(f"--{name} has {len(values[name])} values, --on names {len(on)} accelerators: give one for each")
    sized = [{name: values[name][at] for name in ("gpus", "racks") if name in values} for at in range(len(on))]
    pools = tuple(_make_pool({"on": name, **size}, folders) for name, size in zip(on, sized, strict=True))
    _refuse_twice("accelerator", [pool.name for pool in pools], "--on")
    return pools


def _make_pool(own: Mapping[str, Any], folders: tuple[str, ...]) -> Pool:
    full = load.resolve("accelerators", own["on"], folders)
    options = {name: value for name, value in own.items() if name in ESTIMATE and name not in ("on", "gpus")}
    return Pool(own.get("name", full), {"on": full, **options}, own.get("gpus"), own.get("racks"), own.get("power_limit"))


def _refuse_twice(kind: str, names: list[str], where: str) -> None:
    twice = next((name for at, name in enumerate(names) if name in names[:at]), None)
    if twice is not None:
        raise QuestionError(f"{where} has two {kind}s of the name {twice!r}: give each its own")
