"""The answer to one question: columns, trees, and what a report needs of a row."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from ironlaw.catalog import load
from ironlaw.catalog.model import Model
from ironlaw.cluster import Cluster
from ironlaw.errors import QuestionError, ValueRangeError
from ironlaw.estimate import rules as rule_module
from ironlaw.estimate.bind.records import (
    Assumptions,
    assume,
    bind_cluster,
    bind_job,
    bind_model,
    bind_precision,
    freeze,
    keep_wide,
    plain_model,
)
from ironlaw.estimate.candidates import Placed, place
from ironlaw.estimate.cautions import cautions
from ironlaw.estimate.layer.counts import total_parameters
from ironlaw.estimate.memory.total import Memory, memory
from ironlaw.estimate.pipeline.schedules import one_chunk
from ironlaw.estimate.rates import throughput
from ironlaw.estimate.run import Run, run_of
from ironlaw.estimate.step import Step, step
from ironlaw.job import PRECISIONS, Job
from ironlaw.plan import Plan
from ironlaw.question import defaults
from ironlaw.question.options import DEFAULTS, OPTIONS, flat, is_column, read_options
from ironlaw.terms import BOUNDS, Term, shares, total

if TYPE_CHECKING:
    from ironlaw.estimate.correction import Correction


@dataclass(frozen=True, eq=False, repr=False)
class Group:
    """The rows of a question that one framework runs, evaluated as one batch."""

    index: Any  # where these rows stand in the question
    job: Job
    cluster: Cluster
    plan: Plan
    recompute: tuple[str, ...]
    chosen: tuple[tuple[str, ...], ...]
    rules: Mapping[str, Any]
    memory: Memory
    step: Step
    throughput: Mapping[str, Term]
    run: Run | None
    assumptions: Assumptions
    warnings: tuple[str, ...]
    folders: tuple[str, ...] = ()
    correction: Correction | None = None

    @cached_property
    def shares(self) -> Mapping[str, Any]:
        """Exclusive parts of the step by roof; they sum to 1."""
        booked = shares(self.step.tree)
        return {name: booked[name] / self.step.tree.value for name in BOUNDS}

    @cached_property
    def legal(self) -> Any:
        """True where every rule but ``fits`` holds."""
        return rule_module.legal(dict(self.rules))


@dataclass(frozen=True, eq=False, repr=False)
class Estimate:
    """All rows of a question. Columns are in the order asked; ``row(i)`` is one answer as plain data."""

    groups: tuple[Group, ...]
    rows: int
    folders: tuple[str, ...]

    def _column(self, read: Any) -> Any:
        values = [np.broadcast_to(read(g), g.index.shape) for g in self.groups]
        out = np.empty(self.rows, dtype=np.result_type(*(v.dtype for v in values)))
        for g, v in zip(self.groups, values, strict=True):
            out[g.index] = v
        return out

    @property
    def step_seconds(self) -> Any:
        """Step time of every row [s]; nan where the plan is not legal."""
        return self._column(lambda g: np.where(g.legal, g.step.tree.value, np.nan))

    @property
    def device_bytes(self) -> Any:
        """Memory of the fullest accelerator of every row [B]."""
        return self._column(lambda g: np.where(g.legal, g.memory.device, np.nan))

    @property
    def allocated_bytes(self) -> Any:
        """Tensors of the fullest accelerator of every row [B]."""
        return self._column(lambda g: np.where(g.legal, g.memory.allocated, np.nan))

    @property
    def fits(self) -> Any:
        """True where the plan is legal and its fullest accelerator holds what it must."""
        return self._column(lambda g: g.legal & g.memory.fits)

    @property
    def legal(self) -> Any:
        """True where the plan can exist."""
        return self._column(lambda g: g.legal)

    @property
    def mfu(self) -> Any:
        """Model FLOPs over peak, attention counted as the full square."""
        return self._column(lambda g: np.where(g.legal, g.throughput["mfu"].value, np.nan))

    @property
    def tokens_per_second(self) -> Any:
        """Tokens of the whole cluster per second."""
        return self._column(lambda g: np.where(g.legal, g.throughput["tokens_per_second"].value, np.nan))

    def place_of(self, row: int) -> tuple[Group, int]:
        """The group a row is in, and its position there."""
        for group in self.groups:
            where = np.flatnonzero(group.index == row)
            if where.size:
                return group, int(where[0])
        raise IndexError(row)

    def row(self, index: int = 0, explain: bool = False) -> dict[str, Any]:
        """One row as the JSON object of the contract; ``explain`` adds formula, inputs and sources to every node."""
        from ironlaw.estimate.as_data import row_data

        return row_data(self, index, explain)

    def again(self, options: dict[str, Any]) -> Estimate:
        """The same plans under options that change only the run: tokens, money, failures. No step is computed."""
        bound = bind_question(options, self.folders)
        return replace(self, groups=tuple(with_run(group, bound) for group in self.groups))

    def to_json(self, explain: bool = False) -> Any:
        """The answer as plain data: one object, or a list where the question had many rows."""
        return self.row(0, explain) if self.rows == 1 else [self.row(i, explain) for i in range(self.rows)]


def estimate(model: Any = None, on: str | None = None, *, catalog: Sequence[str] | str = (), where: str = "", **options: Any) -> Estimate:
    """Estimate one training run, or many at once: ``estimate("llama-3-70b", on="h100-sxm", gpus=512)``.

    Options are those of the command line with underscores; those marked as columns in ``options.OPTIONS`` take arrays,
    which broadcast together into rows. ``catalog`` names folders that override the catalogue that ships.
    Raises QuestionError for what cannot be answered; a row that cannot be is False in ``legal`` and nan in the columns.
    """
    folders = load.given_folders(catalog)
    asked = {k: v for k, v in {"model": model, "on": on, **options}.items() if v is not None}
    return answer(read_options(asked, where), folders)


@dataclass(frozen=True, eq=False, repr=False)
class Bound:
    """A question whose names have become records: what is given and by default, the cluster, and the jobs frameworks make of it."""

    given: dict[str, Any]
    model: Model
    left_out: list[str]
    cluster: Cluster
    jobs: Any  # a framework's name -> Job
    assumptions: Assumptions
    folders: tuple[str, ...]


def bind_question(options: dict[str, Any], folders: tuple[str, ...] = ()) -> Bound:
    """The records of options that ``read_options`` has checked; how many accelerators need not be known yet."""
    given = dict(options)
    assumptions: Assumptions = []
    for name, value in given.items():
        assume(assumptions, name, _told(value), "given")
    for name, value in DEFAULTS.items():
        if name not in given:
            given[name] = value
            assume(assumptions, name, _plain(value), "default")
    _refuse(given)
    record, left_out = bind_model(given["model"], folders)
    record = plain_model(record)
    if given.get("frozen_layers"):
        record = freeze(record, int(given["frozen_layers"]))
    if "mtp_layers" in given:
        record = record.replace(num_nextn_predict_layers=int(given["mtp_layers"]))
    if "precision" not in given:
        given["precision"] = bind_precision(given["on"], folders)
        assume(assumptions, "precision", given["precision"], "default")
    wide = [int(given.get(f"bf16_layers_at_{end}", 0)) for end in ("start", "end")]
    if any(wide):
        record = keep_wide(record, given["precision"], *wide)
    _explicit_stages(given, record)
    _sparse_recompute(given, record)
    _narrow_dispatch(given, record)
    cluster = bind_cluster(given, folders, assumptions)
    return Bound(given, record, left_out, cluster, _job_maker(given, record, cluster, folders), assumptions, folders)


def answer(options: dict[str, Any], folders: tuple[str, ...] = ()) -> Estimate:
    """The Estimate of options that ``read_options`` has checked."""
    for name, meaning in (("model", "MODEL"), ("on", "--on ACCELERATOR"), ("gpus", "--gpus N")):
        if name not in options:
            raise QuestionError(f"the question lacks {meaning}")
    bound = bind_question(options, folders)
    rows = _rows(bound.given, bound.model, bound.assumptions)
    placements = place(bound.jobs, bound.cluster, rows, bound.given.get("framework"))
    return Estimate(tuple(_evaluate(bound, placed) for placed in placements), len(rows), folders)


def _refuse(given: dict[str, Any]) -> None:
    """Options that contradict each other."""
    schedule = given.get("schedule")
    if one_chunk(schedule) and any(v != 1 for v in _items(given.get("vpp", 1.0))):
        raise QuestionError(f"--schedule {schedule} has one chunk per rank, --vpp is {_plain(given['vpp'])}: use interleaved")
    ends = [name for name in ("first_stage_layers", "last_stage_layers") if name in given]
    for name in ("layers_per_stage", "count_embedding"):
        if ends and given.get(name):
            raise QuestionError(f"--{ends[0].replace('_', '-')} says what --{name.replace('_', '-')} says too: give one of them")
    if "mtp_stage" in given and not given["mtp_stage"] < len(given.get("layers_per_stage", ())):
        raise QuestionError("--mtp-stage needs --layers-per-stage, and is one of its stages, counted from 0")
    if "global_batch_size" in given and "global_batch_tokens" in given:
        raise QuestionError("give --global-batch-size (sequences) or --global-batch-tokens, not both")


def _explicit_stages(given: dict[str, Any], model: Model) -> None:
    """A list of layers per stage sets pp, and must hold every layer once."""
    layers = given.get("layers_per_stage")
    if layers is None:
        return
    given.setdefault("pp", float(len(layers)))
    if any(v != len(layers) for v in _items(given["pp"])):
        raise QuestionError(f"--layers-per-stage lists {len(layers)} stages, --pp asks for {_plain(given['pp'])} stages")
    if sum(layers) != model.num_hidden_layers:
        raise QuestionError(f"--layers-per-stage adds up to {sum(layers)}, {model.name} has {model.num_hidden_layers} layers")


def _sparse_recompute(given: dict[str, Any], model: Model) -> None:
    """One layer in K needs at least K layers."""
    for how in _items(given.get("recompute", "none")):
        if how.startswith("every:") and int(how[6:]) > model.num_hidden_layers:
            raise ValueRangeError(f"--recompute {how}: {model.name} has {model.num_hidden_layers} layers")


def _narrow_dispatch(given: dict[str, Any], model: Model) -> None:
    """Rows go to their experts in eight bits only where they go somewhere, and where experts compute in eight bits or fewer."""
    how = given.get("dispatch_precision", "wide")
    if how == "wide":
        return
    if not model.num_experts:
        raise QuestionError(f"--dispatch-precision {how}: {model.name} has no experts to send rows to")
    if all(v == 1 for v in _items(given.get("ep", 0.0))):
        raise QuestionError(f"--dispatch-precision {how}: with ep 1 no row is sent to another rank")
    if not PRECISIONS[given["precision"]].narrow:
        narrow = ", ".join(name for name, p in PRECISIONS.items() if p.narrow)
        raise QuestionError(
            f"--dispatch-precision {how} needs experts that compute in eight bits or fewer: {given['precision']} is not of {narrow}"
        )


def _items(value: Any) -> list[Any]:
    return flat(value) if is_column(value) else [value]


def _rows(given: dict[str, Any], model: Model, assumptions: Assumptions) -> list[dict[str, Any]]:
    """The question's column options as one table of values per row; what has a simple default gets it here."""
    if "seq_len" not in given:
        given["seq_len"] = defaults.seq_len(model.max_position_embeddings)
        assume(assumptions, "seq_len", given["seq_len"], "default")
    if "global_batch_tokens" in given:
        sequences = [sequences_of(given["global_batch_tokens"], s) for s in _items(given["seq_len"])]
        given["global_batch_size"] = sequences if len(sequences) > 1 else sequences[0]
    names = [n for n, o in OPTIONS.items() if o.column and n in given]
    columns = {n: _items(given[n]) for n in names}
    n = max(len(c) for c in columns.values())
    for name, c in columns.items():
        if len(c) not in (1, n):
            raise QuestionError(f"{name} has {len(c)} values, other columns {n}: columns must have one length")
    rows = [{name: c[i if len(c) > 1 else 0] for name, c in columns.items()} for i in range(n)]
    for row in rows:
        if "global_batch_size" not in row:
            row["global_batch_size"] = defaults.batch(row["gpus"], row["seq_len"], row.get("micro_batch_size") or 1.0)
        if row.get("sp") is not None:
            row["sp"] = float(row["sp"])
        row["derived"] = ()
        if one_chunk(given.get("schedule")) or row.get("pp") == 1.0:
            _derive(row, "vpp", 1.0)
        _dependent(row)
    if "global_batch_size" not in given:
        assume(assumptions, "global_batch_size", rows[0]["global_batch_size"] if n == 1 else "by row", "default")
    return rows


def sequences_of(tokens: float, seq_len: float) -> float:
    """A batch in sequences, which must be whole."""
    count = tokens / seq_len
    if count != int(count) or count < 1:
        near = " or ".join(f"{n * seq_len:.0f}" for n in (np.floor(count), np.ceil(count)) if n)
        raise ValueRangeError(f"--global-batch-tokens {tokens:.0f} is {count:.2f} sequences of seq_len {seq_len:g}: give {near}")
    return count


def _dependent(row: dict[str, Any]) -> None:
    """An axis that the others decide is not open."""
    mesh = ("tp", "pp", "dp_replicate", "dp_shard")
    left = [a for a in mesh if row.get(a) is None]
    if left in (["tp"], ["pp"]):
        known = row["cp"]
        for a in mesh:
            known *= row.get(a) or 1.0
        _derive(row, left[0], max(row["gpus"] // known, 1.0))


def _derive(row: dict[str, Any], name: str, value: float) -> None:
    """Fill an axis that the others decide, and remember that nobody gave it."""
    if row.get(name) is None:
        row[name] = value
        row["derived"] = (*row["derived"], name)


def _job_maker(given: dict[str, Any], model: Model, cluster: Cluster, folders: tuple[str, ...]) -> Any:
    """The Job for a framework's name, made once each, with what it assumed."""
    made: dict[str, tuple[Job, Assumptions]] = {}

    def job(name: str, notes: bool = False) -> Any:
        if name not in made:
            notes_of: Assumptions = []
            record = load.record("frameworks", name, folders)
            bound = bind_job(given, model, record, cluster.accelerator.flash_attention, notes_of)
            made[name] = (replace(bound, cp_domain=cluster.node.scale_up_size.value), notes_of)
        return made[name] if notes else made[name][0]

    return job


def _evaluate(bound: Bound, placed: Placed) -> Group:
    """Memory, step, rates and run of the rows one framework runs, as one batch."""
    job, plan, cluster = bound.jobs(placed.framework), placed.plan, bound.cluster
    kept = {name: np.broadcast_to(column, (plan.rows,)) for name, column in rule_module.legality(job, plan).items()}
    with np.errstate(all="ignore"):
        held = memory(job, cluster, plan)
        timed = step(job, cluster, plan)
    correction = _correction(bound.given)
    if correction is not None:  # every part of the step is as much longer or shorter as the user's own runs were
        timed = replace(timed, tree=total("step", timed.tree.parts, times=correction.factor))
    with np.errstate(all="ignore"):
        speed = throughput(job, cluster, plan, timed)
    rules = {**kept, "fits": held.fits}
    found: Any = (rules, held, timed, speed, None, [], (), bound.folders, correction)
    return with_run(Group(placed.index, job, cluster, plan, placed.recompute, placed.chosen, *found), bound)


def with_run(group: Group, bound: Bound) -> Group:
    """A group with the run, the assumptions and the cautions of a question: what changes with money and tokens, and no law of a step."""
    given, name = bound.given, group.job.framework.name
    notes = [*bound.assumptions, *bound.jobs(name, notes=True)[1]]
    if group.correction is not None:
        assume(notes, "correction", f"step times {group.correction.factor:.3f} ({group.correction.label})", "override")
    if "schedule" not in given:
        assume(notes, "schedule", "1f1b, interleaved where vpp > 1", "default")
    if "framework" not in given:
        assume(notes, "framework", name, "default")
    run = None
    if "tokens" in given:
        count = total_parameters(group.job.model)
        run = run_of(given, group.cluster, group.plan, group.step.tree.value, group.step.forward_share, count, bound.folders, notes)
    told = [f"left out: {item}" for item in bound.left_out] + cautions(given, _was_given("cp", notes), group.job, group.cluster)
    return replace(group, run=run, assumptions=notes, warnings=tuple(told))


def _correction(given: dict[str, Any]) -> Correction | None:
    """What the user's own runs say, where the question asks for it."""
    if "correction" not in given:
        return None
    from ironlaw.estimate.correction import read_correction

    return read_correction(given["correction"])


def _was_given(name: str, notes: Assumptions) -> bool:
    return any(a["name"] == name and a["origin"] == "given" for a in notes)


def _told(value: Any) -> Any:
    """A given value as the assumptions show it: a column of many rows is told by its length."""
    if isinstance(value, frozenset):
        return ",".join(sorted(value)) or "none"
    if is_column(value):
        return f"{len(value)} values"
    return _plain(value)


def _plain(value: Any) -> Any:
    return int(value) if isinstance(value, float) and value == int(value) else value


__all__ = ["Estimate", "Group", "answer", "estimate", "total_parameters"]
