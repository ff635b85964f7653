"""The predicted step, from an estimate computed now or saved by ``ironlaw estimate --json``.

One reader reads both. A saved file may come from anywhere, so its size, its depth and every number in it are checked.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ironlaw.cautions.record import Caution
from ironlaw.cautions.table import caution
from ironlaw.earlier import check_version, rename_rates
from ironlaw.errors import InputError, MissingOptionError, PlanError, QuestionError, quote
from ironlaw.files import parse_json
from ironlaw.measure.read.limits import open_bytes
from ironlaw.question.options import flag

if TYPE_CHECKING:
    from ironlaw.estimate.answer.estimate import Estimate

RATES = ("mfu", "mfu_full_square", "hfu", "hfu_full_square")
LARGEST = 8 << 20  # [B] an estimate with every formula explained takes 0.3 MB
DEEPEST = 24  # levels of a step tree; the deepest of today's has 7
MOST_NODES = 20_000
LONGEST_NAME = 120
CLOSES = 1e-6  # of the step: the largest accepted difference from the sum of its terms


@dataclass(frozen=True)
class Predicted:
    """The step of one estimate, its leaves in exclusive seconds, and values that identify the run."""

    where: str  # name for messages
    seconds: float
    leaves: Mapping[str, float]  # by name; they sum to the step
    recompute_seconds: float
    band: tuple[float, float, float] | None  # low, high [s], coverage
    plan: Mapping[str, Any]
    stage: str | None  # the slowest pipeline stage; "only" without a pipeline
    layers: float  # in that stage
    rates: Mapping[str, float | None]  # by the names of RATES, and model_flop_per_second_per_gpu
    peak: Mapping[str, Any]
    assumed: tuple[str, ...]  # axes of the plan that the estimate chose itself
    unfit: Caution | None = None  # warning if the estimate does not fit in memory

    @property
    def model_flop(self) -> float | None:
        """Model FLOPs of one step on one accelerator."""
        rate = self.rates.get("model_flop_per_second_per_gpu")
        return None if rate is None else rate * self.seconds


def load_prediction(options: Mapping[str, Any], against: str | Path | None = None, folders: tuple[str, ...] = ()) -> Predicted | None:
    """Load the prediction to compare with: from options of an estimate or from a saved one; None if neither is given."""
    given_options = {name: value for name, value in options.items() if value is not None}
    if against is not None:
        if given_options:
            flags = ", ".join(flag(name) for name in list(given_options)[:4])
            raise QuestionError(f"--against {against} and {flags} both describe the prediction: give one of them")
        return read_saved_estimate(against)
    return read_estimate(run_estimate(given_options, folders)) if given_options else None


def run_estimate(options: Mapping[str, Any], folders: tuple[str, ...] = ()) -> Estimate:
    """Estimate one run from the options of ``ironlaw estimate``."""
    from ironlaw.estimate.answer.estimate import answer
    from ironlaw.question.read import read_options

    if options.get("model") is None:
        raise MissingOptionError("missing option --model: give the model of the run with --on and --gpus, or give --against estimate.json")
    estimate = answer(read_options(options), folders)
    _check_comparable(estimate)
    return estimate


def _check_comparable(estimate: Estimate) -> None:
    """Refuse an estimate of several rows, of a plan that breaks a rule, or without a step time."""
    from ironlaw.estimate.legality.rules import broken

    if estimate.rows != 1:
        raise QuestionError(f"the prediction has {estimate.rows} rows: give the options of the measured run only")
    group, at = estimate.place_of(0)
    if problems := broken(group.job, group.plan, group.rules, at):
        raise PlanError(f"the plan cannot run, so there is no prediction: {'; '.join(problems)}")
    if not math.isfinite(float(estimate.step_seconds[0])):
        raise QuestionError("the prediction has no step time: a value is outside the domain of its law; change the options")


def read_estimate(estimate: Estimate) -> Predicted:
    """Read the step of an estimate with one row."""
    _check_comparable(estimate)
    return _read(estimate.row(0), "the prediction")


def read_saved_estimate(path: str | Path) -> Predicted:
    """Read the step from a file of ``ironlaw estimate --json``."""
    with open_bytes(path, LARGEST) as stream:
        text = stream.read()
    try:
        estimate = parse_json(text)
    except RecursionError:
        raise InputError(f"{path}: nested deeper than any estimate; give a file from ironlaw estimate --json") from None
    except UnicodeDecodeError as error:
        raise InputError(f"{path}: byte {error.start} is not UTF-8; give a file from ironlaw estimate --json") from None
    except ValueError as error:
        raise InputError(f"{path}: not JSON ({error}); give a file from ironlaw estimate --json") from None
    if isinstance(estimate, list):
        raise InputError(f"{path}: a list of {len(estimate)} estimates; save only that of the measured run")
    return _read(estimate, str(path))


def _read(data: Any, where: str) -> Predicted:
    """Read the estimate in ``data``; InputError if something is wrong with it."""
    if not isinstance(data, dict) or not {"schema_version", "step", "plan"} <= set(data):
        raise InputError(f"{where}: not an estimate: schema_version, step or plan is missing; give a file from ironlaw estimate --json")
    check_version(data["schema_version"], where, ": run ironlaw estimate --json again")
    step, plan = _read_table(data, "step", where), _read_table(data, "plan", where)
    if step.get("seconds") is None:
        raise InputError(f"{where}: the estimate has no step time, because its plan cannot run: estimate a plan that can")
    seconds = _check_number(step["seconds"], "step.seconds", where)
    if seconds <= 0:
        raise InputError(f"{where}: step.seconds is {seconds:g}, must be more than 0")
    leaves, recomputed = _sum_leaves(step.get("tree"), where)
    _check_terms(leaves, seconds, where)
    rates = rename_rates(_read_table(data, "throughput", where))
    peak = _read_table(rates, "peak", where)
    return Predicted(
        where=where,
        seconds=seconds,
        leaves=leaves,
        recompute_seconds=recomputed,
        band=_read_band(step.get("band"), where),
        plan=_read_plan(plan, where),
        stage=step["stage"] if isinstance(step.get("stage"), str) else None,
        layers=_count_layers(step["tree"]),
        rates={name: _read_rate(rates, name, where) for name in (*RATES, "model_flop_per_second_per_gpu")},
        peak={
            "flop_per_second": _read_rate(peak, "flop_per_second", where),
            "precision": _read_text(peak, "precision", where),
            "dense": True,
        },
        assumed=_read_assumed(data.get("assumptions"), where),
        unfit=_warn_if_unfit(data, where),
    )


def _check_terms(leaves: dict[str, float], seconds: float, where: str) -> None:
    """Refuse terms that are negative or do not sum to the step time."""
    below = next((name for name, value in leaves.items() if value < -CLOSES * seconds), None)
    if below is not None:
        raise InputError(f"{where}: {below!r} takes {leaves[below]:g} s, must be at least 0")
    total = sum(leaves.values())
    if not abs(total - seconds) <= CLOSES * seconds:
        raise InputError(f"{where}: the terms sum to {total:g} s, but the step is {seconds:g} s: the file was changed by hand")


def _warn_if_unfit(data: dict[str, Any], where: str) -> Caution | None:
    """A warning if the estimate says that the measured run does not fit in memory."""
    memory = data.get("memory")
    if not isinstance(memory, dict) or memory.get("fits") is not False:
        return None
    size, room = (_check_number(memory.get(key), f"memory.{key}", where) for key in ("device", "capacity_bytes"))
    return caution("estimate-did-not-fit", needed_gib=size / 2**30, room_gib=room / 2**30)


def _read_table(data: dict[str, Any], key: str, where: str) -> dict[str, Any]:
    """The table under ``key``; InputError for anything else."""
    value = data.get(key)
    if not isinstance(value, dict):
        raise InputError(f"{where}: {key} is {quote(value)}, expected a table; give a file from ironlaw estimate --json")
    return value


def _check_number(value: Any, key: str, where: str) -> float:
    """Check that ``value`` is a finite number; True and False are not."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise InputError(f"{where}: {key} is {quote(value)}, expected a number")
    try:
        number = float(value)
    except OverflowError:
        number = math.inf
    if not math.isfinite(number):
        raise InputError(f"{where}: {key} is not finite")
    return number


def _read_rate(data: dict[str, Any], key: str, where: str) -> float | None:
    return None if data.get(key) is None else _check_number(data[key], key, where)


def _read_text(data: dict[str, Any], key: str, where: str) -> str:
    """The name under ``key``; InputError for anything else."""
    value = data.get(key)
    if not isinstance(value, str) or not 0 < len(value) <= LONGEST_NAME:
        raise InputError(f"{where}: {key} is {quote(value)}, expected a name")
    return value


def _bare(value: Any) -> str:
    return value[:40] if isinstance(value, str) else quote(value)


def _read_band(value: Any, where: str) -> tuple[float, float, float] | None:
    """The error band of the step: low, high and coverage; None where it has none."""
    if value is None:
        return None
    if not isinstance(value, list) or len(value) != 3:
        raise InputError(f"{where}: step.band is {quote(value)}, expected low, high and coverage")
    low, high, coverage = (_check_number(v, "step.band", where) for v in value)
    return low, high, coverage


_COUNTS = ("gpus", "tp", "pp", "zero", "num_microbatches")


def _read_plan(plan: dict[str, Any], where: str) -> dict[str, Any]:
    """The values of the plan that the comparison needs."""
    counts: dict[str, Any] = {name: _check_number(plan.get(name), f"plan.{name}", where) for name in _COUNTS}
    return counts | {
        "sp": plan.get("sp") is True,
        "model": _read_text(plan, "model", where),
        "accelerator": _read_text(plan, "accelerator", where),
    }


def _read_assumed(items: Any, where: str) -> tuple[str, ...]:
    """Axes that the estimate chose itself, as ``name=value``."""
    if not isinstance(items, list):
        raise InputError(f"{where}: assumptions is {quote(items)}, expected a list")
    chosen = [i for i in items[:1000] if isinstance(i, dict) and i.get("origin") == "chosen"]
    return tuple(f"{_bare(i.get('name'))}={_bare(i.get('value'))}" for i in chosen)


def _sum_leaves(tree: Any, where: str) -> tuple[dict[str, float], float]:
    """Exclusive seconds by name of leaf, and the seconds of recomputation among them."""
    by_name: dict[str, list[float]] = {}
    recomputed_seconds: list[float] = []
    for name, seconds, recomputed in _walk(tree, where):
        by_name.setdefault(name, []).append(seconds)
        if recomputed:
            recomputed_seconds.append(seconds)
    return {name: sum(values) for name, values in by_name.items()}, sum(recomputed_seconds)


def _walk(tree: Any, where: str) -> Iterator[tuple[str, float, bool]]:
    """The leaves of a step tree, multiplied by the repetitions of the nodes above them."""
    stack: list[tuple[Any, float, int, bool]] = [(tree, 1.0, 0, False)]
    count = 0
    while stack:
        node, factor, depth, recomputed = stack.pop()
        count += 1
        if depth > DEEPEST or count > MOST_NODES:
            raise InputError(f"{where}: the step tree is too large (over {DEEPEST} levels or {MOST_NODES} terms)")
        if not isinstance(node, dict):
            raise InputError(f"{where}: a term of the step is {quote(node)}, expected a table")
        name, parts = _read_text(node, "name", where), node.get("parts")
        if not isinstance(parts, list):
            raise InputError(f"{where}: parts of {name!r} is {quote(parts)}, expected a list")
        if not parts:  # the value of a leaf already includes its own repetitions
            value = _check_number(node.get("value"), f"the value of {name!r}", where)
            yield name, _check_number(value * factor, f"{name!r} in all", where), recomputed
        times = _check_number(_check_number(node.get("times", 1.0), f"times of {name!r}", where) * factor, f"times of {name!r}", where)
        stack += [(part, times, depth + 1, recomputed or name == "recompute") for part in reversed(parts)]


def _count_layers(tree: dict[str, Any]) -> float:
    """The number of layers in the slowest stage: every node with a forward pass is a kind of layer."""
    for part in tree["parts"]:
        if part["name"] == "micro-batches":
            kinds = [k for k in part["parts"] if any(inner["name"] == "forward" for inner in k["parts"])]
            return math.fsum(float(k.get("times", 1.0)) for k in kinds)
    return 0.0
