"""Derive what published runs support: the values of their plans by kind of stack and model, and the highest utilisations they reached."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from ironlaw.catalog import load
from ironlaw.catalog.model import Model
from ironlaw.estimate.answer.group import Group
from ironlaw.estimate.evidence.support import (
    CEILINGS,
    DEGREES,
    DEVICE,
    TOGETHER,
    VALUES,
    Ceiling,
    Ran,
    model_kind,
    pairs_of,
    stack_kind,
    width_of,
    words_of,
)
from ironlaw.files import write_file
from ironlaw.terms import scalar
from ironlaw.validate.fill import Apart
from ironlaw.validate.predict import Prepared

CUT = 0.25  # share of the layers; of a series in one shape some models have less than half the depth


def values_that_ran(prepared: Prepared) -> list[Ran]:
    """Every value of a plan that a published run had, by kind of stack and model, with the runs that had it and the first of them.

    A value that the run's source does not say and ironlaw chose is not one.
    """
    found: dict[tuple[str, str, str, str, float], list[str]] = {}
    for run, (group, at) in _runs(prepared):
        for axis, value, length in _values_of(group, at):
            found.setdefault((stack_kind(group.job), model_kind(group.job), axis, value, length), []).append(run.id)
    return [Ran(*key, len(found[key]), found[key][0]) for key in sorted(found, key=_order)]


def _order(key: tuple[str, str, str, str, float]) -> tuple[Any, ...]:
    """The order of the table: by kind and axis; of an axis numbers by size, then words."""
    *kind, value, length = key
    try:
        return (*kind, float(value), "", length)
    except ValueError:
        return (*kind, float("inf"), value, length)


def _runs(prepared: Prepared) -> Iterator[tuple[Any, tuple[Group, int]]]:
    for i, run in enumerate(prepared.runs):
        estimate, row = prepared.answers[i]
        yield run, estimate.place_of(row)


def _values_of(group: Group, at: int) -> Iterator[tuple[str, str, float]]:
    """(axis, value, length) of the plan of a row, without what was chosen for it and what is off."""
    plan, chosen = group.plan.take([at]), group.chosen[at]
    for axis in DEGREES:
        degree = scalar(getattr(plan, axis))
        if degree > 1.0 and axis not in chosen:
            yield axis, f"{degree:g}", scalar(plan.seq_len) if axis == "cp" else 0.0
    for axis, word, on in words_of(group.job, plan):
        if np.all(on) and axis not in chosen:
            yield axis, word, 0.0
    for axes, word, _, on in pairs_of(group.job, plan, group.cluster.accelerator.architecture):
        if np.all(on) and not {*axes, "ep"} & {*chosen}:
            yield TOGETHER, word, 0.0
    yield DEVICE, group.cluster.accelerator.name, 0.0


def highest_rates(prepared: Prepared) -> list[Ceiling]:
    """The highest measured MFU, and FLOP rate with recomputation, of every device, format, kind and width of model.

    ``measured share = predicted share * predicted time / measured time``: attention is counted as the page counts it. Rows whose format
    is not known are left out, those of a model that was cut to a few layers, and of the rate with recomputation those whose recomputation
    is not known.
    """
    found: dict[tuple[str, str, str, float], list[tuple[float, float, str]]] = {}
    for i, (run, (group, at)) in enumerate(_runs(prepared)):
        if Apart.NO_PRECISION in run.apart or is_cut(group.job.model):
            continue
        faster = scalar(group.step.tree, at) / float(prepared.measured[i])
        mfu, hfu = (scalar(group.throughput[name], at) * faster for name in ("mfu", "hfu"))
        key = (group.cluster.accelerator.name, group.job.precision.peak, model_kind(group.job), width_of(group.job.model))
        found.setdefault(key, []).append((mfu, mfu if "recompute" in group.chosen[at] else hfu, run.id))
    return [_ceiling(key, rates) for key, rates in sorted(found.items())]


def is_cut(model: Model) -> bool:
    """True for the shape of a model of the catalogue with less than CUT of its layers: a benchmark of a few layers, not a model.

    >>> from ironlaw.catalog.load import record
    >>> deepseek = record("models", "deepseek-v3")
    >>> is_cut(deepseek), is_cut(deepseek.replace(num_hidden_layers=4))
    (False, True)
    """
    return model.num_hidden_layers < CUT * _least_layers().get(_shape(model), 0)


def _shape(model: Model) -> tuple[int, ...]:
    """What identifies a model apart from its depth."""
    return model.hidden_size, model.num_attention_heads, model.num_experts, int(width_of(model))


@cache
def _least_layers() -> dict[tuple[int, ...], int]:
    """The fewest layers that a model of the catalogue has, by its shape."""
    found: dict[tuple[int, ...], int] = {}
    for name in load.names("models"):
        model = load.record("models", name)
        found[_shape(model)] = min(found.get(_shape(model), model.num_hidden_layers), model.num_hidden_layers)
    return found


def _ceiling(key: tuple[str, str, str, float], rates: list[tuple[float, float, str]]) -> Ceiling:
    mfu, hfu = max(rates, key=lambda rate: rate[0]), max(rates, key=lambda rate: rate[1])
    return Ceiling(*key, len(rates), round(mfu[0], 4), mfu[2], round(hfu[1], 4), hfu[2])


def table_text(record: Any, lines: Iterable[tuple[Any, ...]]) -> str:
    """A table as the file that ships has it."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(record._fields)
    for line in lines:
        writer.writerow(f"{cell:.15g}" if isinstance(cell, float) else cell for cell in line)
    return text.getvalue()


def support_files(prepared: Prepared) -> dict[Path, str]:
    """Both tables that ship, by file."""
    return {VALUES: table_text(Ran, values_that_ran(prepared)), CEILINGS: table_text(Ceiling, highest_rates(prepared))}


def write_support(prepared: Prepared) -> None:
    """Write both tables."""
    for path, text in support_files(prepared).items():
        write_file(path, text.encode())
