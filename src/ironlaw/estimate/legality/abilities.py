"""What a training stack can run: one rule for given and searched plans, its sentences, and the stack of a question that names none.

Every check reads the table ``can`` of the framework's record (``catalog.abilities``). It holds for columns of plans; of a question that
gives some axes alone, the checks that read no other axis are asked.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import cache
from typing import Any, NamedTuple

import numpy as np

from ironlaw.catalog import load
from ironlaw.catalog.abilities import Can, has
from ironlaw.catalog.model import Model
from ironlaw.catalog.records import Framework
from ironlaw.errors import UnsupportedError
from ironlaw.job import Job
from ironlaw.plan import RECOMPUTE, RECOMPUTE_MODULES, Plan, flags, plan_with, recompute_columns
from ironlaw.question.asked import Asked
from ironlaw.question.defaults import CUDA_GRAPH, GRAPH_MODULES, OFFLOADS, OFFLOADS_WITH, OVERLAPS, PRECISIONS
from ironlaw.question.fields import Row

FORMS = ("none", "selective", "every", "share", "full", "segments")  # of recomputation
SELECTIVE = ("recompute_attention", "recompute_linear", "recompute_elementwise", *RECOMPUTE_MODULES.values())  # parts of layers
_LEAST_SHARE = 1e-6  # of the layers
_ROUNDING = 1e-9  # of a share that is one over a whole number


class Facts(NamedTuple):
    """What the checks read of a job beside the plan; None: the question leaves it to the stack."""

    layers: float = 1.0
    count_embedding: bool = False
    layers_per_stage: tuple[int, ...] = ()
    schedule: str | None = None
    cp_method: str | None = None
    dispatcher: str | None = None
    habits: tuple[str, ...] = OVERLAPS  # what the stack overlaps by default
    routed: bool = False  # the model has experts
    latent: bool = False  # attention goes through latents


class Check(NamedTuple):
    """One thing that a stack may lack: the axes it reads, where a plan keeps it, and what to say where it does not."""

    reads: tuple[str, ...]
    holds: Callable[[Can, Facts, Plan], Any]
    lacks: str  # "has no ..." with the values of a plan
    instead: str  # what to leave out


def _zero_runs(can: Can, facts: Facts, plan: Plan) -> Any:
    """True where ZeRO's stage is one it has, or where no two ranks hold the same weights."""
    del facts
    return _among(plan.zero, can.zero) | (plan.dp * plan.cp == 1.0)


def _zero_runs_in_pipelines(can: Can, facts: Facts, plan: Plan) -> Any:
    del facts
    return (plan.pp == 1.0) | _among(plan.zero, can.zero_with_pp) | (plan.dp * plan.cp == 1.0)


def _stages_run(can: Can, facts: Facts, plan: Plan) -> Any:
    """True where the layers are spread over stages and chunks as it can spread them."""
    layers = facts.layers + 2.0 * facts.count_embedding
    even = (np.maximum(plan.first_stage_layers, plan.last_stage_layers) < 0.0) & (len(set(facts.layers_per_stage)) <= 1)
    stages: Any = True if can.stages == "any" else even & (layers % plan.pp == 0.0)
    chunks: Any = True
    if can.chunks != "any":
        chunks = (plan.vpp == 1.0) | (False if can.chunks == "one" else even & (layers % (plan.pp * plan.vpp) == 0.0))
    return stages & chunks | (plan.pp == 1.0)


def _recomputes(form: str) -> Callable[[Can, Facts, Plan], Any]:
    """A check of one form of recomputation."""

    def holds(can: Can, facts: Facts, plan: Plan) -> Any:
        del facts
        return np.True_ if has(can.recompute, form) else np.logical_not(FORM_HOLDS[form](plan))

    return holds


def _is_one_in_some(share: Any) -> Any:
    """True where a share of the layers is one layer in K, with K whole."""
    layers = 1.0 / np.maximum(share, _LEAST_SHARE)
    return np.abs(layers - np.round(layers)) < _ROUNDING * layers


FORM_HOLDS: dict[str, Callable[[Plan], Any]] = {
    "selective": lambda plan: sum(getattr(plan, name) for name in SELECTIVE) > 0.0,
    "every": lambda plan: (plan.recompute_layers > 0.0) & (plan.recompute_layers < 1.0) & _is_one_in_some(plan.recompute_layers),
    "share": lambda plan: (plan.recompute_layers > 0.0) & (plan.recompute_layers < 1.0) & ~_is_one_in_some(plan.recompute_layers),
    "full": lambda plan: (plan.recompute_layers == 1.0) & (plan.recompute_segment == 1.0),
    "segments": lambda plan: plan.recompute_segment > 1.0,
}


def _overlaps(name: str) -> Callable[[Can, Facts, Plan], Any]:
    """A check of one overlap."""

    def holds(can: Can, facts: Facts, plan: Plan) -> Any:
        return np.True_ if name in facts.habits or has(can.overlap, name) else getattr(plan, _flag("overlap", name)) == 0.0

    return holds


def _overlaps_with(name: str) -> Callable[[Can, Facts, Plan], Any]:
    """A check of the overlap that another one needs; where gradients are sharded, their reduction is part of it."""

    def holds(can: Can, facts: Facts, plan: Plan) -> Any:
        del facts
        other = can.needs.get(name)
        if other is None:
            return np.True_
        return (getattr(plan, _flag("overlap", name)) == 0.0) | (getattr(plan, _flag("overlap", other)) > 0.0) | (plan.zero >= 2.0)

    return holds


def has_overlap(can: Can, name: str, model: Model) -> bool:
    """True where a recipe of a stack can overlap one kind of communication of a model.

    >>> from ironlaw.catalog.load import record
    >>> can = record("frameworks", "megatron").able
    >>> [has_overlap(can, "tp", record("models", model)) for model in ("llama-3-70b", "deepseek-v3")]
    [True, False]
    """
    return has(can.overlap, name) and not (model.kv_lora_rank and name in can.not_with_latent_attention)


def _overlaps_latent(name: str) -> Callable[[Can, Facts, Plan], Any]:
    """A check of one overlap of models with latent attention, where there are two ranks whose communication it hides."""

    def holds(can: Can, facts: Facts, plan: Plan) -> Any:
        if not facts.latent or name not in can.not_with_latent_attention:
            return np.True_
        ranks = getattr(plan, name) if name in Plan.fields else 2.0
        return (getattr(plan, _flag("overlap", name)) == 0.0) | (ranks == 1.0)

    return holds


def _chunks_overlap(can: Can, facts: Facts, plan: Plan) -> Any:
    """True where chunks run with the overlap they need: of hand-overs, on pipelines that are too short to do without."""
    del facts
    kept: Any = (plan.vpp == 1.0) | (plan.pp >= can.unoverlapped_chunks_from) | (plan.overlap_pp > 0.0)
    other = can.needs.get("vpp")
    return kept if other is None else kept & ((plan.vpp == 1.0) | (getattr(plan, _flag("overlap", other)) > 0.0))


def _offloads(name: str) -> Callable[[Can, Facts, Plan], Any]:
    """A check of one kind of offloading; what another kind brings with it is that kind's."""
    bringing = [other for other, brought in OFFLOADS_WITH.items() if brought == name]

    def holds(can: Can, facts: Facts, plan: Plan) -> Any:
        del facts
        if has(can.offload, name):
            return np.True_
        alone = getattr(plan, _flag("offload", name))
        for other in bringing:
            alone = alone * (1.0 - getattr(plan, _flag("offload", other)))
        return alone == 0.0

    return holds


def form_of(how: str) -> str:
    """The form of a recompute option, as tables name it.

    >>> form_of("every:2"), form_of("share:0.5"), form_of("share:0.75"), form_of("selective:attention")
    ('every', 'every', 'share', 'selective')
    """
    head, _, tail = how.partition(":")
    return "every" if head == "share" and _is_one_in_some(float(tail)) else head


def _flag(prefix: str, name: str) -> str:
    return f"{prefix}_{name.replace('-', '_')}"


def _among(column: Any, numbers: Collection[int]) -> Any:
    return np.isin(column, np.array(sorted(set(numbers)), dtype=np.float64))


def _runs_schedule(can: Can, facts: Facts, plan: Plan) -> Any:
    return (plan.pp == 1.0) | (facts.schedule is None or has(can.schedules, facts.schedule))


def _runs_method(can: Can, facts: Facts, plan: Plan) -> Any:
    return (plan.cp == 1.0) | (has(can.cp, facts.cp_method) if facts.cp_method else bool(can.cp))


CHECKS = (
    Check(("tp",), lambda can, _, plan: (plan.tp == 1.0) | can.tp, "tensor parallelism", "--tp"),
    Check(("pp",), lambda can, _, plan: (plan.pp == 1.0) | can.pp, "pipeline parallelism", "--pp"),
    Check(("pp",), _runs_schedule, "pipeline schedule {schedule}", "--schedule"),
    Check(
        ("vpp",),
        lambda can, _, plan: (plan.vpp == 1.0) | (can.chunks != "one" and can.pp),
        "several chunks of layers a pipeline rank",
        "--vpp",
    ),
    Check(
        ("pp", "vpp", "first_stage_layers", "last_stage_layers"),
        _stages_run,
        "unequal pipeline stages or chunks: {layers:g} layers on pp {pp:g}, vpp {vpp:g}",
        "--vpp, or the layers of stages",
    ),
    Check(
        ("pp", "vpp", "overlap"),
        _chunks_overlap,
        "several chunks of pp {pp:g} whose hand-overs do not overlap",
        "--vpp, or --overlap with pp",
    ),
    Check(("cp",), _runs_method, "context parallelism{by_method}", "--cp"),
    Check(("ep",), lambda can, _, plan: (plan.ep == 1.0) | can.ep, "expert parallelism", "--ep"),
    Check(("tp", "sp"), lambda can, _, plan: (plan.tp == 1.0) | (plan.sp == 0.0) | can.sp, "sequence parallelism", "--sp on"),
    Check(
        ("tp", "sp"),
        lambda can, facts, plan: (plan.tp == 1.0) | (plan.sp > 0.0) | (not (can.sp_with_experts and facts.routed)),
        "mixtures with tp and without sequence parallelism",
        "--sp off",
    ),
    Check(("etp",), lambda can, _, plan: (plan.etp == 1.0) | can.etp, "tensor parallelism inside an expert", "--etp"),
    Check(
        ("ep",),
        lambda can, facts, plan: (plan.ep == 1.0) | (facts.dispatcher is None or has(can.dispatchers, facts.dispatcher)),
        "dispatcher {dispatcher}",
        "--moe-dispatcher",
    ),
    Check(("zero",), _zero_runs, "ZeRO {zero:g}", "--zero"),
    Check(("zero", "pp"), _zero_runs_in_pipelines, "ZeRO {zero:g} with a pipeline", "--zero or --pp"),
    Check(
        ("dp_replicate", "dp_shard"),
        lambda can, _, plan: (plan.dp_replicate == 1.0) | (plan.dp_shard == 1.0) | can.hsdp,
        "replicas of groups that shard (dp_replicate {dp_replicate:g}, dp_shard {dp_shard:g})",
        "--dp-replicate",
    ),
    *(Check(("recompute",), _recomputes(form), f"recomputation {form}", "--recompute") for form in FORMS[1:]),
    *(Check(("overlap",), _overlaps(name), f"overlap of {name}", "--overlap") for name in OVERLAPS),
    *(
        Check(("overlap", "tp"), _overlaps_latent(name), f"overlap of {name} with latent attention", f"{name} in --overlap")
        for name in OVERLAPS
    ),
    *(Check(("overlap",), _overlaps_with(name), f"overlap of {name} without the overlap that it needs", "--overlap") for name in OVERLAPS),
    *(Check(("offload",), _offloads(name), f"offloading of {name}", "--offload") for name in OFFLOADS),
)


def can_run(job: Job, plan: Plan, known: Collection[str] | None = None) -> Any:
    """True where the stack of a job can run a plan; ``known``: the axes of the plan that are set, where it is not whole."""
    can, facts, kept = job.framework.can, facts_of(job), np.bool_(True)
    if can is None:
        return kept
    for check in CHECKS:
        if known is None or set(check.reads) <= set(known):
            holds = check.holds(can, facts, plan)
            kept = kept if np.all(holds) else kept & holds  # a rule that every plan keeps has the shape of none
    return kept


def facts_of(job: Job) -> Facts:
    """What the checks read of a job."""
    return Facts(
        float(job.model.num_hidden_layers), job.count_embedding, job.layers_per_stage, job.schedule, job.cp_method, job.moe_dispatcher,
        tuple(job.framework.overlap), bool(job.model.num_experts), bool(job.model.kv_lora_rank),
    )  # fmt: skip


def broken_ability(job: Job, plans: Plan, at: int) -> str:
    """What the stack of a job lacks for the plan of row ``at``, in a sentence."""
    values = {name: float(np.broadcast_to(getattr(plans, name), (plans.rows,))[at]) for name in Plan.fields}
    plan, facts = Plan(**{name: np.float64(value) for name, value in values.items()}), facts_of(job)
    for check in CHECKS:
        if not np.all(check.holds(job.framework.able, facts, plan)):
            return _sentence(job.framework, _filled(check.lacks, facts, values), check.instead)
    return f"{job.framework.name} cannot run this plan"


def _filled(text: str, facts: Facts, values: Mapping[str, float]) -> str:
    method = f" by {facts.cp_method}" if facts.cp_method else ""
    return text.format(**{**values, **facts._asdict()}, by_method=method)


def _sentence(framework: Framework, lacks: str, instead: str, other: str = "") -> str:
    return f"{framework.name} has no {lacks}{_cited(framework)}: leave out {instead}, or name --framework {other or 'generic'}"


def _cited(framework: Framework) -> str:
    """The source of a stack's table in brackets: what its title names first."""
    return f" ({framework.able.source.title.partition(':')[0]})" if framework.able.source else ""


def seldom_in(job: Job, plans: Plan, at: int, axes: Collection[str]) -> list[str]:
    """What few people run on a stack of ``axes`` of the plan of row ``at``, as its table names it: an axis, or an axis with a value.

    >>> from ironlaw.estimate.answer.estimate import answer
    >>> group, at = answer({"model": "llama-3-8b", "on": "h100-sxm", "gpus": 7, "zero": 3.0}).place_of(0)
    >>> seldom_in(group.job, group.plan, at, ["zero"]), seldom_in(group.job, group.plan, at, ["tp"])
    (['zero 3'], [])
    """
    values = {name: float(np.broadcast_to(getattr(plans, name), (plans.rows,))[at]) for name in Plan.fields}
    return [
        name for name in job.framework.able.seldom if _SET_BY.get(name, name.partition(" ")[0]) in axes and _has_seldom(name, job, values)
    ]


_SET_BY = {"hsdp": "dp_replicate"}  # axes that another axis sets


def _has_seldom(name: str, job: Job, values: Mapping[str, float]) -> bool:
    """True where a plan has what a row of ``seldom`` names."""
    axis, _, value = name.partition(" ")
    if name == "hsdp":
        return values["dp_replicate"] > 1.0 and values["dp_shard"] > 1.0
    if not value:
        return values[axis] > 1.0
    if _flag(axis, value) in values:
        return values[_flag(axis, value)] > 0.0
    return values["pp"] > 1.0 and job.schedule == value if axis == "schedule" else values[axis] == float(value)


# --- questions


class Needs(NamedTuple):
    """What a question gives that a stack may lack."""

    vendor: str
    axes: tuple[tuple[str, Any], ...]  # of a plan, with their values
    options: tuple[tuple[str, str], ...]  # key of the table, name of the option
    facts: Facts
    gpus: float = 1.0


# key of the table -> options of a question whose values are its names
LISTED = {
    "schedules": ("schedule",), "dispatchers": ("moe_dispatcher",), "precisions": ("precision", "expert_precision"),
    "cuda_graphs": ("cuda_graphs",), "gradient_dtypes": ("gradient_dtype",), "optimizers": ("optimizer",), "adapters": ("adapter",),
    "frozen_weights": ("frozen_weights",), "objectives": ("objective",),
}  # fmt: skip
ABSENT = ("", CUDA_GRAPH)  # values with which an option asks nothing of a stack
_IDLE = {"schedule": "pp", "moe_dispatcher": "ep"}  # options that change nothing where an axis is 1


def needs_of(asked: Asked, row: Row, vendor: str, model: Model, folders: tuple[str, ...] = ()) -> Needs:
    """What one row of a question gives; what the planner or a default decides is not given."""
    given = {name: getattr(row, name) for name in Row._fields if getattr(row, name) is not None and name not in _SIZES}
    options = []
    for key, names in LISTED.items():
        for name in names:
            value = str(getattr(asked, name) or "")
            if getattr(row, _IDLE.get(name, "gpus")) == 1.0 and name in _IDLE:
                continue
            if name in asked.given and value not in ABSENT and (key != "precisions" or value in PRECISIONS):
                options += [(key, word) for word in _word_of(key, value, folders)]
    if asked.lora_rank and "adapter" not in asked.given:
        options.append(("adapters", asked.adapter))
    facts = Facts(
        float(model.num_hidden_layers), "count_embedding" in asked.given and asked.count_embedding, tuple(asked.layers_per_stage),
        asked.schedule if "schedule" in asked.given else None, asked.cp_method if "cp_method" in asked.given else None,
        asked.moe_dispatcher if "moe_dispatcher" in asked.given else None, latent=bool(model.kv_lora_rank),
    )  # fmt: skip
    return Needs(vendor, tuple(given.items()), tuple(options), facts, float(row.gpus or 1.0))


def _word_of(key: str, value: str, folders: tuple[str, ...]) -> tuple[str, ...]:
    """The word of a stack's table for the value of an option; none for an objective whose step every stack runs."""
    if key == "objectives" and load.record(key, value, folders).is_plain:
        return ()
    if key == "cuda_graphs" and value.split(",", maxsplit=1)[0] in GRAPH_MODULES:
        return ("partial",)
    return (load.resolve(key, value, folders) if key in ("objectives", "optimizers") else value,)


_SIZES = ("gpus", "global_batch_size", "seq_len", "micro_batch_size", "sp")


def lacking(framework: Framework, needs: Needs) -> Iterator[str]:
    """What a stack lacks of what a question gives, in sentences."""
    can = framework.can
    if can is None:
        return
    if needs.vendor and not has(can.vendors, needs.vendor):
        yield f"is described for accelerators of {', '.join(can.vendors)}, not of {needs.vendor}"
    for key, name in needs.options:
        if not has(getattr(can, key), name):
            yield f"has no {_NAMED[key]} {name}"
    if needs.facts.count_embedding and not can.count_embedding:
        yield "counts no embedding as a layer of a pipeline stage"
    axes = dict(needs.axes)
    plan = _plan_of(axes, needs.gpus, framework)
    facts = needs.facts._replace(habits=tuple(framework.overlap))
    for check in CHECKS:
        if not set(check.reads) & axes.keys() or not set(check.reads) <= axes.keys() | _OPTIONAL:
            continue
        if not np.all(check.holds(can, facts, plan)):
            values = {name: float(getattr(plan, name)) for name in Plan.fields}
            yield f"has no {_filled(check.lacks, facts, values)}"


_NAMED = {
    "schedules": "pipeline schedule", "dispatchers": "dispatcher", "precisions": "precision", "cuda_graphs": "CUDA graphs:",
    "gradient_dtypes": "gradients in", "optimizers": "optimizer", "adapters": "adapters of the kind", "frozen_weights": "frozen weights in",
    "objectives": "objective",
}  # fmt: skip
_OPTIONAL = {"first_stage_layers", "last_stage_layers"}  # have a rule where they are not given


def _plan_of(axes: Mapping[str, Any], gpus: float, framework: Framework) -> Plan:
    """The plan of some axes, with what is not given as a stack does it by default; the other ranks are replicas that shard."""
    numbers = {name: float(value) for name, value in axes.items() if name not in ("recompute", "overlap", "offload")}
    on = flags("overlap", OVERLAPS, framework.overlap if axes.get("overlap") is None else axes["overlap"])
    on |= flags("offload", OFFLOADS, axes.get("offload") or ())
    recompute = dict(zip(RECOMPUTE, recompute_columns(str(axes.get("recompute", "none")), framework.selective_recompute), strict=True))
    plan = plan_with(**{"gpus": np.float64(gpus), "zero": np.float64(framework.default_zero), **on, **recompute, **numbers})
    if "dp_shard" not in numbers:
        plan = plan.replace(dp_shard=max(gpus / float(plan.tp * plan.pp * plan.cp * plan.dp_replicate), 1.0))
    return plan


def refuse_lacking(framework: Framework, rows: Sequence[Needs], folders: tuple[str, ...] = ()) -> None:
    """Refuse what a question gives and the stack that it names lacks; of several rows that differ the rule column says which."""
    lacks = [next(lacking(framework, needs), "") for needs in rows]
    if all(lacks):
        other = framework.can.elsewhere if framework.can and framework.can.elsewhere else ""
        if not other or any(lacking(load.record("frameworks", other, folders), rows[0])):
            other = choose(rows[0], False, folders)
        raise UnsupportedError(f"{framework.name} {lacks[0]}{_cited(framework)}: leave that out, or name --framework {other}")


def why_chosen(name: str, vendor: str, folders: tuple[str, ...] = ()) -> str:
    """Why a framework was chosen for a question that names none, in words.

    >>> why_chosen("fsdp", "AMD")
    'the first in order that has what the question gives, on accelerators of AMD'
    """
    if name == load.record("choices", "framework", folders).otherwise:
        return f"no framework of the catalogue has all that the question gives, on accelerators of {vendor}"
    return f"the first in order that has what the question gives, on accelerators of {vendor}"


def usual_framework(vendor: str, gpus: float | None = None, tp: float | None = None, pp: float | None = None) -> str:
    """The framework of a question that gives no more than a device, its number, tp and pp.

    >>> usual_framework("NVIDIA", gpus=1), usual_framework("NVIDIA", 64, tp=1, pp=1), usual_framework("NVIDIA", 64, tp=1)
    ('fsdp', 'fsdp', 'megatron')
    """
    axes = {name: degree for name, degree in (("tp", tp), ("pp", pp)) if degree is not None}
    return choose(Needs(vendor, tuple(axes.items()), (), Facts(), gpus or 1.0), is_flat(gpus, tp, pp))


def is_flat(gpus: float | None, tp: float | None, pp: float | None) -> bool:
    """True for one accelerator, and where a question gives tp 1 and pp 1."""
    return gpus == 1.0 or tp == pp == 1.0


@cache
def choose(needs: Needs, flat: bool, folders: tuple[str, ...] = ()) -> str:
    """The framework of a question that names none: the first of the catalogue's order that has everything the question gives."""
    order = load.record("choices", "framework", folders)
    listed: tuple[str, ...] = order.flat if flat else order.split
    fitting = (name for name in listed if not any(lacking(load.record("frameworks", name, folders), needs)))
    return str(next(fitting, order.otherwise))
