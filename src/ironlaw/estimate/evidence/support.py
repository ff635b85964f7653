"""What published runs measured of a plan: every value of its axes is measured, interpolated or never measured.

Two tables ship, derived from the published runs by ``validate.support``: the values that ran, by kind of stack and of model, and the
highest utilisations that were measured, by device, format and kind of model. An answer reads them when it is printed.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ironlaw.catalog.load import SHIPPED
from ironlaw.errors import CatalogError
from ironlaw.estimate.layer.kinds import kinds
from ironlaw.estimate.legality.abilities import FORM_HOLDS
from ironlaw.files import read_shipped
from ironlaw.job import Job
from ironlaw.plan import Plan
from ironlaw.question.defaults import OFFLOADS, OVERLAPS, SCHEDULE

if TYPE_CHECKING:
    from ironlaw.catalog.model import Model
    from ironlaw.estimate.answer.group import Group

VALUES, CEILINGS = SHIPPED / "bands" / "support.csv", SHIPPED / "bands" / "ceilings.csv"
NEAR = 1.5  # a degree within this factor of one that ran is measured
NEAR_WIDTH = 2.0  # matrices up to this factor as wide reach a comparable share of the peak
LEAST_WIDTH = 0.8  # narrower ones alone say little: of 3,072 to 10,240 on A100 0.8 of the width loses 4 to 10 % of the MFU
NEAR_LENGTH = 2.0  # a context-parallel degree counts for sequences within this factor
STATUS = ("measured", "interpolated", "never measured")
NEVER = STATUS.index("never measured")
TOGETHER, DEVICE = "together", "accelerator"  # in the table: axes of pairs of values, and of the devices that runs had
DEGREES = ("tp", "pp", "vpp", "cp", "ep", "etp", "micro_batch_size")
_WORDS = {"micro_batch_size": "micro-batch"}


class Ran(NamedTuple):
    """A value that published runs of a kind had: of a degree a number (``length``: of cp the sequence), else a word; one of the runs."""

    stack: str
    model: str
    axis: str
    value: str
    length: float
    runs: int
    id: str


class Ceiling(NamedTuple):
    """The highest measured MFU and FLOP rate with recomputation, as shares of the peak, and the runs that reached them.

    ``width`` is that of the matrices with most of the work, of an expert or of a dense MLP.
    """

    device: str
    format: str
    model: str
    width: float
    runs: int
    mfu: float
    id: str
    hfu: float
    hfu_id: str


def stack_kind(job: Job) -> str:
    """The kind of stack by which evidence counts: what splits the work, or the stack itself."""
    return job.framework.engine or job.framework.name


def model_kind(job: Job) -> str:
    """The kind of model by which evidence counts: adapters, hybrid, mixture or dense."""
    model = job.model
    if job.lora_rank or model.frozen_layers:
        return "adapters"
    if any(kind.mixer.exchanges for kind in kinds(model)):
        return "hybrid"
    return "mixture" if model.num_experts else "dense"


def words_of(job: Job, plan: Plan) -> Iterator[tuple[str, str, Any]]:
    """(axis, word, where plans have it) of every property of a plan that is no degree. A switch without effect is not there."""
    replicas, staged = plan.dp * plan.cp > 1.0, plan.pp > 1.0
    for stage in (1.0, 2.0, 3.0):
        yield "zero", f"ZeRO {stage:g}", (plan.zero == stage) & replicas & ~staged
        yield "zero", f"ZeRO {stage:g} with a pipeline", (plan.zero == stage) & replicas & staged
    yield "dp_replicate", "replicas of groups that shard", (plan.dp_replicate > 1.0) & (plan.dp_shard > 1.0) & (plan.zero > 0.0)
    yield "sp", "tp without sequence parallelism", (plan.tp > 1.0) & (plan.sp == 0.0)
    yield from (("recompute", word, on) for word, on in _recomputation_words(plan))
    used = {"grad-reduce": replicas, "param-gather": replicas & (plan.zero > 0.0), "tp": plan.tp > 1.0, "pp": plan.vpp > 1.0}
    used["ep"] = plan.ep > 1.0
    for name in OVERLAPS:
        yield "overlap", f"overlap of {name}", (getattr(plan, f"overlap_{name.replace('-', '_')}") > 0.0) & used[name]
    for name in OFFLOADS:
        yield "offload", f"{name} in host memory" if name != "nvme" else "optimizer on NVMe", getattr(plan, f"offload_{name}") > 0.0
    yield "vpp", "unequal chunks", (plan.vpp > 1.0) & ~_divides(job, plan, plan.pp * plan.vpp)
    yield "pp", "unequal stages", staged & ~_divides(job, plan, plan.pp)
    yield "schedule", f"schedule {job.schedule}", staged & (job.schedule != SCHEDULE)
    yield "cp_method", f"cp by {job.cp_method}", plan.cp > 1.0


def _recomputation_words(plan: Plan) -> list[tuple[str, Any]]:
    """The word of every form of recomputation, and where plans have it."""
    forms = [(f"recomputation {form}", holds(plan)) for form, holds in FORM_HOLDS.items()]
    return [*forms, ("no recomputation", ~np.any(np.broadcast_arrays(*(on for _, on in forms)), axis=0))]


def pairs_of(job: Job, plan: Plan, architecture: str) -> Iterator[tuple[tuple[str, str], str, tuple[str, ...], Any]]:
    """(axes, word, words of its parts, where plans have both) of every pair of values that sets what runs beside the traffic of experts.

    How much of the traffic is hidden depends on its overlap, the dispatcher, what is recomputed and whether there is a pipeline, together:
    each alone, a value says little. Of a pair without the overlap one is the dispatcher. ``architecture``: of the accelerators, for which
    dispatchers are written.
    """
    if not job.model.num_experts:
        return
    traffic, staged = plan.ep > 1.0, plan.pp > 1.0
    overlap, dispatcher = "overlap of ep", job.moe_dispatcher
    overlapped = traffic & (plan.overlap_ep > 0.0)
    beside: list[tuple[str, str, tuple[str, ...], Any]]
    beside = [("recompute", word, (word,), on) for word, on in _recomputation_words(plan)]
    beside += [("pp", "a pipeline", (), staged), ("pp", "no pipeline", (), ~staged)]
    yield ("overlap", "moe_dispatcher"), f"{overlap} with {dispatcher}", (overlap,), overlapped
    yield ("moe_dispatcher", DEVICE), f"{dispatcher} on {architecture}", (), traffic
    for axis, word, parts, on in beside:
        yield ("overlap", axis), f"{overlap} with {word}", (overlap, *parts), overlapped & on
        yield ("moe_dispatcher", axis), f"{dispatcher} with {word}", parts, traffic & on


def _divides(job: Job, plan: Plan, parts: Any) -> Any:
    """True where all parts of a pipeline have as many layers; an embedding and a loss that count as layers are some.

    They count as one each where the question says so, and where a first or a last stage is given one layer less than the others have.
    """
    ends = (plan.first_stage_layers, plan.last_stage_layers)
    counted = sum(1.0 * (given >= 0.0) for given in ends) if not job.count_embedding else 2.0
    layers = job.model.num_hidden_layers + counted
    alike: Any = np.bool_(len(set(job.layers_per_stage)) <= 1)
    for given in ends:
        alike = alike & ((given < 0.0) | (given + 1.0 == layers / plan.pp))
    return alike & (np.mod(layers, parts) == 0.0)


# --- the tables


@cache
def read_values(path: Path = VALUES) -> Mapping[tuple[str, str], Mapping[str, tuple[Ran, ...]]]:
    """The values that ran, by kind of stack and of model, then by axis of a degree or by word."""
    found: dict[tuple[str, str], dict[str, tuple[Ran, ...]]] = {}
    for stack, model, axis, value, length, runs, name in _lines(path, Ran):
        ran = Ran(stack, model, axis, value, float(length), int(runs), name)
        of_kind = found.setdefault((stack, model), {})
        key = axis if _is_degree(value) else value
        of_kind[key] = (*of_kind.get(key, ()), ran)
    return found


@cache
def read_ceilings(path: Path = CEILINGS) -> Mapping[tuple[str, str, str], tuple[Ceiling, ...]]:
    """The highest rates by device, format and kind of model, one for each width that ran."""
    found: dict[tuple[str, str, str], tuple[Ceiling, ...]] = {}
    for device, form, model, width, runs, mfu, name, hfu, hfu_name in _lines(path, Ceiling):
        one = Ceiling(device, form, model, float(width), int(runs), float(mfu), name, float(hfu), hfu_name)
        found[one[:3]] = (*found.get(one[:3], ()), one)
    return found


def _lines(path: Path, record: Any) -> list[list[str]]:
    """The lines of a table that ships. Raises CatalogError where it is not one."""
    try:
        header, *lines = csv.reader(io.StringIO(read_shipped(path), newline=""))
    except (OSError, ValueError, csv.Error) as error:
        raise CatalogError(f"{path}: cannot be read: {error}") from None
    if tuple(header) != record._fields:
        raise CatalogError(f"{path}: not a table of published runs: run ironlaw validate fit")
    return lines


def _is_degree(value: str) -> bool:
    return value.replace(".", "", 1).isdigit()


# --- how far a value is supported


def degree_status(value: Any, length: Any, ran: Sequence[tuple[float, float]]) -> Any:
    """For each degree at a sequence length the index in STATUS, from the (degree, length) that ran.

    Measured: one that ran is within a factor NEAR of it, at a length within NEAR_LENGTH. Interpolated: it lies between 1 and the highest
    that ran at such a length, or its length between two at which a degree within NEAR ran.

    >>> [STATUS[degree_status(d, 8192.0, [(2.0, 4096.0), (8.0, 8192.0)])] for d in (3.0, 4.0, 16.0)]
    ['measured', 'interpolated', 'never measured']
    """
    value, length = np.broadcast_arrays(np.asarray(value, dtype=np.float64), np.asarray(length, dtype=np.float64))
    if not ran:
        return np.full(value.shape, NEVER)
    degrees, lengths = np.log(np.array(ran, dtype=np.float64)).T
    apart = np.log(value)[..., None] - degrees
    beyond = np.log(length)[..., None] - lengths
    slack = 1e-9
    near, same_length = np.abs(apart) <= np.log(NEAR) + slack, np.abs(beyond) <= np.log(NEAR_LENGTH) + slack
    measured = np.any(near & same_length, axis=-1)
    below = np.any((apart <= slack) & same_length, axis=-1)
    within = np.any(near & (beyond >= 0.0), axis=-1) & np.any(near & (beyond <= 0.0), axis=-1)
    return np.where(measured, 0, np.where(below | within, 1, NEVER))


def statuses(job: Job, plan: Plan, architecture: str) -> Iterator[tuple[str, str | None, Any, Any]]:
    """(axis, word or None for a degree, where plans have it, index in STATUS) of every axis of some plans, as columns.

    ``architecture`` is that of the accelerator.
    """
    for axis, column, status in _degrees(job, {axis: getattr(plan, axis) for axis in DEGREES}, plan.seq_len):
        yield axis, None, column > 1.0, status
    of_kind = read_values().get((stack_kind(job), model_kind(job)), {})
    for axis, word, on in words_of(job, plan):
        yield axis, word, on, np.int64(0 if word in of_kind else NEVER)
    yield from _statuses_together(job, plan, architecture, of_kind)


def _statuses_together(job: Job, plan: Plan, architecture: str, of_kind: Mapping[str, Any]) -> Iterator[tuple[str, str, Any, Any]]:
    """As ``statuses``, of the pairs of plans that overlap the traffic of experts. A pair of which a part never ran alone is none."""
    if not np.any(plan.overlap_ep > 0.0):
        return
    for _, word, parts, on in pairs_of(job, plan, architecture):
        if all(part in of_kind for part in parts):
            yield TOGETHER, word, on & (plan.overlap_ep > 0.0), np.int64(0 if word in of_kind else NEVER)


def has_runs(job: Job) -> bool:
    """True where there is a published run of a job's kind of stack and model."""
    return (stack_kind(job), model_kind(job)) in read_values()


def never_measured(job: Job, plan: Plan, architecture: str) -> Any:
    """How many values of each plan no published run of this kind of stack and model had, nor runs on either side of them."""
    count: Any = np.zeros(plan.rows, dtype=np.int64)
    for _, _, on, status in statuses(job, plan, architecture):
        count = count + (on & (status == NEVER))
    return count


def never_measured_names(job: Job, plan: Plan, architecture: str) -> tuple[str, ...]:
    """The values of one plan that no such run had, as a page names them."""
    listed = ((word or _degree_words(axis, plan), on & (status == NEVER)) for axis, word, on, status in statuses(job, plan, architecture))
    return tuple(name for name, never in listed if np.all(never))


def never_measured_degrees(job: Job, columns: Mapping[str, Any], seq_len: float) -> Any:
    """How many degrees of each row of ``columns`` no such run had: no plan of the row has fewer such values."""
    return sum((column > 1.0) & (status == NEVER) for _, column, status in _degrees(job, columns, seq_len))


def _degrees(job: Job, columns: Mapping[str, Any], seq_len: Any) -> Iterator[tuple[str, Any, Any]]:
    """(axis, degrees, index in STATUS) of every degree."""
    of_kind = read_values().get((stack_kind(job), model_kind(job)), {})
    for axis in DEGREES:
        with_length = axis == "cp"
        ran = [(float(line.value), line.length if with_length else 1.0) for line in of_kind.get(axis, ())]
        yield axis, columns[axis], degree_status(columns[axis], seq_len if with_length else 1.0, ran)


def support_data(group: Group, at: int) -> dict[str, Any]:
    """What published runs measured of a row's plan, as plain data."""
    job, plan, accelerator = group.job, group.plan.take([at]), group.cluster.accelerator
    of_kind = read_values().get((stack_kind(job), model_kind(job)), {})
    values = []
    for axis, word, on, status in statuses(job, plan, accelerator.architecture):
        if not np.all(on):
            continue
        name = word or _degree_words(axis, plan)
        nearest = _nearest(of_kind.get(word or axis, ()), axis, plan)
        named = {} if nearest is None else {"run": nearest}
        values.append({"axis": axis, "value": name, "status": STATUS[int(np.ravel(status)[0])], **named})
    return {
        "stack": stack_kind(job),
        "model": model_kind(job),
        "any": bool(of_kind),
        "on_accelerator": accelerator.name in of_kind,
        "values": values,
        "never_measured": list(never_measured_names(job, plan, accelerator.architecture)),
    }


def _degree_words(axis: str, plan: Plan) -> str:
    """A degree as a page names it."""
    words = f"{_WORDS.get(axis, axis)} {float(np.ravel(getattr(plan, axis))[0]):g}"
    return f"{words} at {float(np.ravel(plan.seq_len)[0]):,.0f} tokens" if axis == "cp" else words


def _nearest(ran: Sequence[Ran], axis: str, plan: Plan) -> str | None:
    """A published run with a value, of a degree with the nearest one; None where no run of the kind has any."""
    if not ran or not _is_degree(ran[0].value):
        return ran[0].id if ran else None
    value, length = (float(np.ravel(getattr(plan, name))[0]) for name in (axis, "seq_len"))

    def distance(line: Ran) -> float:
        return abs(float(np.log(float(line.value) / value))) + (abs(float(np.log(line.length / length))) if line.length else 0.0)

    return min(ran, key=distance).id


# --- ceilings


def width_of(model: Model) -> float:
    """Width of the matrices with most of the work of a model: of one expert, or of the dense MLP."""
    return float((model.num_experts and model.moe_intermediate_size) or model.intermediate_size)


def ceiling_of(group: Group) -> Ceiling | None:
    """The highest measured utilisations on the device of a group, in formats of its peak and its kind of model, of models like its own.

    Wide matrices reach more of the peak. So runs count whose matrices are at most NEAR_WIDTH times as wide as its own, if one
    of them is LEAST_WIDTH as wide or more. Else wider ones count; None where there are none of these either.
    """
    accelerator, width = group.cluster.accelerator, width_of(group.job.model)
    own = accelerator.peak[group.job.precision.peak].value
    formats = [name for name, peak in accelerator.peak.items() if peak.value == own]
    listed = [one for name in formats for one in read_ceilings().get((accelerator.name, name, model_kind(group.job)), ())]
    like = comparable([one.width for one in listed], width)
    counted = [one for one, counts in zip(listed, like, strict=True) if counts]
    return highest(counted) if counted else None


def comparable(widths: Sequence[float], width: float) -> list[bool]:
    """Which of some widths that ran say how much of the peak a width reaches.

    >>> comparable([768.0, 2048.0, 32768.0], 2048.0), comparable([1536.0, 32768.0], 14336.0), comparable([9728.0], 14336.0)
    ([True, True, False], [True, True], [False])
    """
    known = any(width * LEAST_WIDTH <= ran <= width * NEAR_WIDTH for ran in widths)
    wider = any(ran > width * NEAR_WIDTH for ran in widths)
    return [ran <= width * NEAR_WIDTH if known else wider for ran in widths]


def highest(some: Sequence[Ceiling]) -> Ceiling:
    """The highest of some rates, each with its run; its width is the largest."""
    mfu, hfu = max(some, key=lambda one: one.mfu), max(some, key=lambda one: one.hfu)
    width, runs = max(one.width for one in some), sum(one.runs for one in some)
    return mfu._replace(width=width, runs=runs, hfu=hfu.hfu, hfu_id=hfu.hfu_id)


def ceiling_data(group: Group, at: int) -> dict[str, Any] | None:
    """The highest measured utilisations as plain data, and whether a row is above them."""
    ceiling = ceiling_of(group)
    if ceiling is None:
        return None
    mfu, hfu = (float(np.broadcast_to(group.throughput[name].value, group.index.shape)[at]) for name in ("mfu", "hfu"))
    return {
        "format": ceiling.format,
        "model": ceiling.model,
        "width": ceiling.width,
        "mfu": ceiling.mfu,
        "run": ceiling.id,
        "hfu": ceiling.hfu,
        "hfu_run": ceiling.hfu_id,
        "runs": ceiling.runs,
        "above": bool(mfu > ceiling.mfu),
        "hfu_above": bool(hfu > ceiling.hfu),
    }
