"""The options and record values that reproduce an answer: the given options, those of its plan, and the values of its records."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np

from ironlaw.catalog import load
from ironlaw.catalog.schema import Schema
from ironlaw.catalog.sourced import Source, Sourced
from ironlaw.estimate.bind.cluster import bind_precision
from ironlaw.job import Job
from ironlaw.question import defaults
from ironlaw.question.asked import SCALARS, Asked
from ironlaw.question.assumptions import printed
from ironlaw.question.fields import Row
from ironlaw.question.options import OPTIONS
from ironlaw.question.readers import duration
from ironlaw.question.words import PerParameter

if TYPE_CHECKING:
    from ironlaw.estimate.answer.group import Group

_AXES = (
    "gpus", "tp", "pp", "vpp", "cp", "ep", "etp", "dp_replicate", "dp_shard", "sp", "zero", "micro_batch_size", "global_batch_size",
    "seq_len",
)  # fmt: skip
_ENDS = ("first_stage_layers", "last_stage_layers")
_DTYPES = ("gradient_dtype", "weights_dtype")  # that a search may choose
_OPEN = Asked()
_OF_JOB = tuple(name for name in Job.fields if name in SCALARS - {"model", "framework", "precision", "optimizer"})
# a Job has them in another form than a question
_DECIDED = ("expert_load", "lora_targets", "fp8_scaling", "fp8_param_gather", "mtp_stage", "objective", "teacher")
# fields of a model that options set
_BY_OPTIONS = ("scores", "frozen_layers", "wide_layers_at_start", "wide_layers_at_end", "wide_parts")


def asked_data(group: Group, at: int) -> dict[str, Any]:
    """The options of a row: ``given`` by the user, and those of its ``plan``; together they ask for exactly this plan.

    Every value has a form that the option's reader reads.
    """
    assert group.asked is not None
    rows = group.asked.rows  # of the group alone, or of the whole question
    given = given_options(group.asked, rows[at if len(rows) == group.index.size else int(group.index[at])])
    return {"given": given, "plan": {name: as_option(name, value) for name, value in _held(group, at)}}


def given_options(asked: Asked, row: Row) -> dict[str, Any]:
    """The options that the user gave."""
    return {name: as_option(name, getattr(row if name in Row._fields else asked, name)) for name in asked.given if name in OPTIONS}


def as_option(name: str, value: Any) -> Any:
    """A value that an option's reader has read, in a form that it reads again.

    >>> as_option("mttf", 3600.0), as_option("overlap", frozenset({"tp", "pp"})), as_option("tp", 2.0)
    ('3600.0 s', 'pp,tp', 2)
    """
    if OPTIONS[name].read is duration:
        return f"{value!r} s"
    if isinstance(value, PerParameter):
        return f"{value.tokens:.15g}x"
    if isinstance(value, Mapping):
        return dict(value)
    return list(value) if isinstance(value, tuple) else printed(value)


def _held(group: Group, at: int) -> Iterator[tuple[str, Any]]:
    """The options of a row's plan and job, without those that follow from the others."""
    asked, job, plan = group.asked, group.job, group.plan
    assert asked is not None

    def of(name: str) -> Any:
        return float(np.broadcast_to(getattr(plan, name), (plan.rows,))[at])

    for name in _AXES:
        if of(name).is_integer():  # a plan that breaks a rule may have 1.5 ranks, which no option says
            yield name, bool(of(name)) if name == "sp" else of(name)
    yield "recompute", group.recompute[at]
    for prefix, names, usual in (("overlap", defaults.OVERLAPS, job.framework.overlap), ("offload", defaults.OFFLOADS, ())):
        on = frozenset(name for name in names if of(f"{prefix}_{name.replace('-', '_')}"))
        if on != frozenset(usual):
            yield prefix, on
    for name in _ENDS:
        if of(name) >= 0.0:
            yield name, of(name)
    yield "framework", job.framework.name
    if job.precision.name != bind_precision(asked.on, group.folders):
        yield "precision", job.precision.name
    if job.optimizer.name != defaults.OPTIMIZER:
        yield "optimizer", job.optimizer.name
    yield from ((name, getattr(asked, name)) for name in _DTYPES if getattr(asked, name) is not None and name not in asked.given)
    if job.schedule != defaults.SCHEDULE:
        yield "schedule", job.schedule
    for name in _OF_JOB:
        value = getattr(asked if name in _DECIDED else job, name)
        if name != "schedule" and value != getattr(_OPEN, name):
            yield name, value


def records_data(group: Group) -> dict[str, dict[str, Any]]:
    """The records of an answer by kind and name: values that a file has, each with its source in brackets."""
    job, cluster = group.job, group.cluster
    named: dict[str, Iterable[Any]] = {
        "accelerators": (cluster.accelerator,),
        "nodes": (cluster.node,),
        "fabrics": (cluster.fabric,),
        "frameworks": (job.framework,),
        "precisions": dict.fromkeys((job.precision, job.expert_formats)),
        "optimizers": job.optimizer.records,
        "calibration": (cluster.calibration, cluster.scale_up, cluster.scale_out),
        "systems": (cluster.systems,),
        "bands": (load.record("bands", "default", group.folders),),
    }
    model = {name: value for name, value in _values(job.model) if name not in _BY_OPTIONS}
    of_catalogue = {(kind, record.name): None for kind, records in named.items() for record in records}
    return {f"models/{job.model.name}": model, **{f"{k}/{n}": dict(_record_values(k, n, group.folders)) for k, n in of_catalogue}}


@cache
def _record_values(kind: str, name: str, folders: tuple[str, ...]) -> tuple[tuple[str, Any], ...]:
    """The values of a record as its file has them, without what the options of a question change in it."""
    return tuple(_values(load.record(kind, name, folders)))


def _values(record: Schema, prefix: str = "") -> Iterator[tuple[str, Any]]:
    """The values of a record that differ from its schema's defaults, by path; without names and sources."""
    for name, field in record.fields.items():
        value = getattr(record, name)
        if name in ("name", "title") or isinstance(value, Source) or (not field.required and value == field.default_value()):
            continue
        yield from _flat(f"{prefix}{name}", value)


def _flat(path: str, value: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(value, Sourced):
        yield path, f"{value.text} [{value.source.key}]" if value.source else value.text
    elif isinstance(value, Schema):
        yield from _values(value, f"{path}.")
    elif isinstance(value, Mapping):
        for key, item in value.items():
            yield from _flat(f"{path}.{key}", item)
    elif isinstance(value, tuple) and value and isinstance(value[0], Schema):
        for i, item in enumerate(value):
            yield from _values(item, f"{path}[{i}].")
    else:
        yield path, list(value) if isinstance(value, tuple) else value
