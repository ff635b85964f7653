"""Bind a question before any law runs: look up the records it names, and fill in the defaults that need a record."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from ironlaw.catalog import load
from ironlaw.catalog.abilities import ANY
from ironlaw.catalog.model import Model
from ironlaw.catalog.records import Framework
from ironlaw.cluster import Cluster
from ironlaw.errors import CatalogError, QuestionError, ValueRangeError
from ironlaw.estimate.bind.cluster import bind_cluster, bind_host, bind_precision, find_precision, note_override
from ironlaw.estimate.bind.expert_loads import bind_expert_load
from ironlaw.estimate.bind.job import bind_job
from ironlaw.estimate.bind.model import assumed_of, bind_model, trained_model
from ironlaw.estimate.bind.objective import bind_objective, check_teacher, scored
from ironlaw.estimate.bind.optimizer import bind_optimizer
from ironlaw.estimate.layer.counts import weights_of_modules
from ironlaw.estimate.legality.abilities import choose, is_flat, needs_of, refuse_lacking, why_chosen
from ironlaw.estimate.memory.errors import margin_of
from ironlaw.estimate.pipeline.schedules import one_chunk
from ironlaw.files import is_there
from ironlaw.frozen import Frozen
from ironlaw.job import Documents, Job, Optimizers
from ironlaw.plan import RECOMPUTE_MODULES
from ironlaw.precision import OUTPUT, PRECISIONS, Precision
from ironlaw.question import defaults
from ironlaw.question.asked import Asked, check
from ironlaw.question.assumptions import Assumptions, assume, printed
from ironlaw.question.fields import Row
from ironlaw.question.words import layers_named

if TYPE_CHECKING:
    from ironlaw.estimate.bind.failures import FailureRates
    from ironlaw.estimate.bind.money import Money
    from ironlaw.estimate.evidence.correction import Correction

# constant defaults that an answer lists among its assumptions; of cp and etp where the plan is given, else they are chosen
NOTED = {"optimizer": defaults.OPTIMIZER, "count_embedding": False, "cp": defaults.CP, "etp": defaults.ETP}


class Bound(Frozen):
    """A question with its records: the model, the cluster, the job under each framework, and the inputs of a run."""

    asked: Asked
    model: Model
    left_out: list[str]  # parts of the model that are not modelled
    cluster: Cluster
    job_of: Callable[[str], tuple[Job, Assumptions]]  # by the framework's name: the job, and the assumptions that the framework makes
    assumptions: Assumptions
    folders: tuple[str, ...]
    money: Money | None  # where a run is asked for
    failure_rates: FailureRates | None
    run_assumptions: Assumptions
    correction: Correction | None

    def job(self, framework: str) -> Job:
        """The job as a framework runs it."""
        return self.job_of(framework)[0]

    def margin(self, framework: str) -> float:
        """The share of device memory that a plan must leave free to be called best: as given, or learned from published runs."""
        return margin_of(self.cluster, framework, self.folders)

    def room(self, framework: str) -> float:
        """Bytes of device memory that a plan may use and keep the margin [B]."""
        return self.cluster.accelerator.usable_memory * (1.0 - self.margin(framework))


OF_TOWERS = ("images_per_sequence", "image_size", "audio_seconds", "encoder_seq_len", "frozen_tower")  # options that towers read


def bind_question(asked: Asked, folders: tuple[str, ...] = (), with_run: bool | None = None) -> Bound:
    """The records of a question. ``with_run``: bind price, grid and failures too; by default where tokens are given."""
    notes: Assumptions = []
    folders = load.with_constants(folders, asked.calibration_version)
    asked = _with_usual_optimizer(asked, folders)
    _note_asked(asked, notes)
    check(asked)
    record, left_out = bind_model(asked.model, folders)
    notes += [{"name": f"model {name}", "value": value, "origin": "default"} for name, value in assumed_of(asked.model).items()]
    precision = _precision_of(asked, folders, notes)
    optimizer = bind_optimizer(asked, folders)
    _note_overrides(asked, record, optimizer, folders, notes)
    formats = find_precision("precision", precision, folders)
    of_experts = find_precision("expert-precision", asked.expert_precision, folders) if asked.expert_precision else formats
    objective = bind_objective(asked, folders, notes)
    model = scored(trained_model(asked, _with_towers(asked, record, notes), formats, notes), objective[0])
    check_teacher(objective[1], model)
    _check_options(asked, model, of_experts)
    if asked.layers_per_stage:
        asked = asked.replace(rows=tuple(row._replace(pp=float(len(asked.layers_per_stage))) for row in asked.rows))
    cluster = _cluster_of(asked, optimizer, folders, notes)
    documents = _documents_of(asked, folders, notes)
    expert_load = bind_expert_load(asked, model, folders)

    @cache
    def job_of(framework: str) -> tuple[Job, Assumptions]:
        decided: Assumptions = []
        note_override("frameworks", load.resolve("frameworks", framework, folders), folders, decided)
        stack, both = _stack_of(asked, framework, model, cluster, folders), (formats, of_experts)
        return bind_job(asked, model, stack, optimizer, cluster, both, decided, objective, documents, expert_load), decided

    run_assumptions: Assumptions = []
    money, rates = _run_of(asked, cluster, folders, run_assumptions, asked.tokens is not None if with_run is None else with_run)
    return Bound(
        asked=asked.replace(precision=formats.name),
        model=model,
        left_out=left_out,
        cluster=cluster,
        job_of=job_of,
        assumptions=notes,
        folders=folders,
        money=money,
        failure_rates=rates,
        run_assumptions=run_assumptions,
        correction=_correction_of(asked),
    )


def _with_usual_optimizer(asked: Asked, folders: tuple[str, ...]) -> Asked:
    """The question with the usual optimizer of the framework that it names, where it names no optimizer."""
    if not asked.framework or "optimizer" in asked.given:
        return asked
    return asked.replace(optimizer=load.record("frameworks", asked.framework, folders).usual_optimizer or defaults.OPTIMIZER)


def _note_asked(asked: Asked, notes: Assumptions) -> None:
    """Note what the question gives, how its words are read, and the defaults that are the same for every question."""
    for name, value in asked.given.items():
        assume(notes, name, value, "given")
    for written, reading in asked.readings:
        assume(notes, written, reading, "default")
    for name, usual in {**NOTED, "optimizer": asked.optimizer}.items():
        if name not in asked.given:
            assume(notes, name, printed(usual), "default")


def _precision_of(asked: Asked, folders: tuple[str, ...], notes: Assumptions) -> str:
    """The precision as asked, or the device's; the rule of the schedule is noted with it."""
    precision = asked.precision or bind_precision(asked.on, folders)
    if "precision" not in asked.given:
        assume(notes, "precision", precision, "default")
    if asked.schedule is None:
        assume(notes, "schedule", defaults.SCHEDULE_RULE, "default")
    return precision


def _with_towers(asked: Asked, record: Model, notes: Assumptions) -> Model:
    """The model with the tokens of its towers; an option of towers is refused where it has none."""
    if not record.towers and asked.given.keys().isdisjoint(OF_TOWERS):
        return record
    from ironlaw.estimate.bind.towers import with_towers

    return with_towers(asked, record, notes)


def _run_of(
    asked: Asked, cluster: Cluster, folders: tuple[str, ...], notes: Assumptions, with_run: bool
) -> tuple[Money | None, FailureRates | None]:
    """Price, grid and failures of the run; a question of one step does not pay for their imports, but unknown names are refused."""
    if not with_run:
        if isinstance(asked.grid, str) or isinstance(asked.price, str):
            _refuse_unknown_names(asked, cluster, folders)
        return None, None
    from ironlaw.estimate.bind.failures import bind_failures
    from ironlaw.estimate.bind.money import bind_money

    return bind_money(asked, cluster, folders, notes), bind_failures(asked, cluster, notes)


def _correction_of(asked: Asked) -> Correction | None:
    """The correction by own runs that the question names."""
    if asked.correction is None:
        return None
    from ironlaw.estimate.evidence.correction import read_correction

    return read_correction(asked.correction)


def _cluster_of(asked: Asked, optimizer: Optimizers, folders: tuple[str, ...], notes: Assumptions) -> Cluster:
    """The cluster of a question; with the host of an optimizer whose pages may move there."""
    cluster = bind_cluster(asked, folders, notes)
    if optimizer.matrices.paged and not any(row.offload for row in asked.rows):
        bind_host(f"--optimizer {optimizer.name}", cluster.accelerator, cluster.node, cluster.systems, notes)
    return cluster


def _documents_of(asked: Asked, folders: tuple[str, ...], notes: Assumptions) -> Documents | None:
    """The documents of a question that gives lengths; others do not pay for the import."""
    if asked.lengths is None:
        return None
    from ironlaw.estimate.bind.documents import bind_documents

    return bind_documents(asked, folders, notes)


def _note_overrides(asked: Asked, model: Model, optimizer: Optimizers, folders: tuple[str, ...], notes: Assumptions) -> None:
    """Note the records of a model and of optimizers that come from the user's folders or from an installed package."""
    if isinstance(asked.model, str) and not is_there(Path(asked.model)):
        note_override("models", model.name, folders, notes)
    for rule in optimizer.records:
        note_override("optimizers", rule.name, folders, notes)


def _refuse_unknown_names(asked: Asked, cluster: Cluster, folders: tuple[str, ...]) -> None:
    """Refuse a grid or a price that the catalogue does not have, also in a question that does not use it: it is a slip."""
    from ironlaw.estimate.bind.money import bind_grid, bind_price

    if isinstance(asked.grid, str):
        bind_grid(asked.grid, folders, [])
    if isinstance(asked.price, str):
        bind_price(asked.price, cluster, folders, [])


def _stack_of(asked: Asked, framework: str, model: Model, cluster: Cluster, folders: tuple[str, ...]) -> Framework:
    """The record of a framework. What one that the question names lacks is refused; one that is not named is chosen to have it."""
    stack: Framework = load.record("frameworks", framework, folders)
    _check_names(stack)
    if asked.framework and stack.name == load.resolve("frameworks", asked.framework, folders):
        vendor = cluster.accelerator.vendor
        refuse_lacking(stack, [needs_of(asked, row, vendor, model, folders) for row in asked.rows], folders)
    return stack


def _check_names(stack: Framework) -> None:
    """Refuse a framework's record with a name that code looks up and does not have."""
    can = stack.able
    needs = tuple(can.needs.values())
    for key, names, known in (
        ("schedules", can.schedules, defaults.SCHEDULES),
        ("cp", can.cp, defaults.CP_METHODS),
        ("needs", needs, defaults.OVERLAPS),
    ):
        odd = next((name for name in names if name not in (*known, *ANY)), None)
        if odd is not None:
            raise CatalogError(f"framework {stack.name}: can.{key} has {odd!r}, expected some of {', '.join(known)}")


def _check_recomputed_modules(asked: Asked, model: Model) -> None:
    """Refuse to recompute a module that no layer of the model has."""
    weights = weights_of_modules(model)
    for row in asked.rows:
        named = (row.recompute or "").partition(":")[2].split(",")
        lacks = next((name for name in named if name in RECOMPUTE_MODULES and not weights[RECOMPUTE_MODULES[name]]), None)
        if lacks is not None:
            has = [name for name, column in RECOMPUTE_MODULES.items() if weights[column]]
            raise QuestionError(f"--recompute {row.recompute}: {model.name} has no {lacks} to recompute; it has {', '.join(has) or 'none'}")


def _check_options(asked: Asked, model: Model, of_experts: Precision) -> None:
    """Refuse options that the schedule, the model or the precision cannot have."""
    chunks = next((row.vpp for row in asked.rows if row.vpp not in (None, 1.0)), None)
    if chunks is not None and one_chunk(asked.schedule):
        raise QuestionError(f"--schedule {asked.schedule} has one chunk per rank, --vpp is {printed(chunks)}: use interleaved")
    layers = asked.layers_per_stage
    if layers and sum(layers) != model.num_hidden_layers:
        raise QuestionError(f"--layers-per-stage adds up to {sum(layers)}, {model.name} has {model.num_hidden_layers} layers")
    for row in asked.rows:
        if row.recompute and layers_named(row.recompute) > model.num_hidden_layers:
            raise ValueRangeError(
                f"--recompute {row.recompute}: {model.name} has only {model.num_hidden_layers} layers; give a smaller interval"
            )
    _check_recomputed_modules(asked, model)
    if asked.expert_precision and not model.num_experts:
        raise QuestionError(f"--expert-precision {asked.expert_precision}: {model.name} has no experts; leave the option out")
    how = asked.dispatch_precision
    if how != defaults.DISPATCH_PRECISION:
        if not model.num_experts:
            raise QuestionError(f"--dispatch-precision {how}: {model.name} has no experts to send rows to")
        if all(row.ep == 1.0 for row in asked.rows):
            raise QuestionError(f"--dispatch-precision {how}: with ep 1 no row is sent to another rank")
        if not of_experts.product(OUTPUT).narrow:
            narrow = ", ".join(name for name, p in PRECISIONS.items() if p.product(OUTPUT).narrow)
            raise QuestionError(f"--dispatch-precision {how} needs --precision {narrow}; got {of_experts.name}")


def framework_of(bound: Bound, row: Row) -> str:
    """The framework that runs a row. It follows from the question alone, not from the plan that is chosen."""
    if bound.asked.framework:
        return bound.asked.framework
    needs = needs_of(bound.asked, row, bound.cluster.accelerator.vendor, bound.model, bound.folders)
    return choose(needs, is_flat(row.gpus, row.tp, row.pp), bound.folders)


def note_framework(notes: Assumptions, bound: Bound, name: str) -> None:
    """Note the framework of a question that names none, and why it was chosen."""
    if "framework" not in bound.asked.given:
        why = why_chosen(name, bound.cluster.accelerator.vendor, bound.folders)
        assume(notes, "framework", f"{name}, chosen: {why}", "default")


def with_batch(bound: Bound) -> Bound:
    """A bound question whose rows all have a sequence length, and a batch where the question gives one: else the planner picks it."""
    asked, notes = bound.asked, list(bound.assumptions)
    length = defaults.seq_len(bound.model.max_position_embeddings)
    rows = tuple(_with_batch(asked, row, length) for row in asked.rows)
    if asked.global_batch_tokens is not None:
        for taken in dict.fromkeys(batch_taken(asked.global_batch_tokens, row.seq_len or length) for row in rows):
            notes[:0] = [{"name": "--global-batch-tokens", "value": taken, "origin": "default"}] * bool(taken)  # first: the user reads it
    if "seq_len" not in asked.given:
        assume(notes, "seq_len", rows[0].seq_len, "default")
    return bound.replace(asked=asked.replace(rows=rows), assumptions=notes)


def _with_batch(asked: Asked, row: Row, default_length: float) -> Row:
    """A row with its sequence length, and with its batch in sequences if it is given."""
    length = default_length if row.seq_len is None else row.seq_len
    batch = row.global_batch_size if asked.global_batch_tokens is None else sequences_of(asked.global_batch_tokens, length)
    return row._replace(seq_len=length, global_batch_size=batch)


def sequences_of(tokens: float, seq_len: float, multiple: float = 1.0) -> float:
    """The sequences of a batch in tokens: the nearest whole number, or the nearest multiple of a number.

    >>> sequences_of(1e6, 8192.0)
    122.0
    """
    count = tokens / seq_len
    if count < 1.0:
        raise ValueRangeError(f"--global-batch-tokens {tokens:.0f} is less than one sequence of {seq_len:.0f} tokens")
    return max(float(round(count / multiple)), 1.0) * multiple


def batch_taken(tokens: float, seq_len: float, multiple: float = 1.0) -> str:
    """How a batch in tokens was rounded to whole sequences, as text; empty where it needed no rounding.

    >>> batch_taken(1e6, 8192.0)
    '1,000,000 tokens asked, 122 sequences of 8,192 = 999,424 tokens taken'
    """
    count = sequences_of(tokens, seq_len, multiple)
    taken = count * seq_len
    return "" if taken == tokens else f"{tokens:,.0f} tokens asked, {count:,.0f} sequences of {seq_len:,.0f} = {taken:,.0f} tokens taken"
