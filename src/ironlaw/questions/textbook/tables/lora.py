"""Low-rank adapters beside full fine-tuning: parameters, memory and FLOPs, to first order and by estimate."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import Any

from ironlaw import units
from ironlaw.cautions.record import Sentence
from ironlaw.cautions.table import caution
from ironlaw.errors import QuestionError, UnsupportedError
from ironlaw.estimate.answer.estimate import Estimate, answer
from ironlaw.estimate.layer.adapters import visited
from ironlaw.estimate.layer.counts import active_parameters, total_parameters
from ironlaw.estimate.layer.kinds import kinds
from ironlaw.estimate.layer.trained import layer_trained
from ironlaw.job import Job
from ironlaw.law import flops, states
from ironlaw.question.forms import need
from ironlaw.questions.answer import Answer, Column, Table, filled_columns
from ironlaw.questions.plan_words import describe_plan
from ironlaw.terms import Term, leaf, scalar, total

TARGETS = {"all": "all linear layers", "mlp": "MLP"}
RANKS = (8.0, 16.0, 64.0)
METHODS = (
    Column("method", "method"), Column("trainable", "trained", "parameter"), Column("share", "of all", "%"),
    Column("first_memory", "memory, first order", "B"), Column("first_flop", "FLOP per token", "FLOP"), Column("memory", "memory", "B"),
    Column("fits", "fits"), Column("step", "step", "s"), Column("tokens_per_second", "tokens/s", "1"), Column("speed", "speed", "%"),
    Column("seconds", "run", "s"), Column("usd", "USD", "USD"), Column("plan", "plan"), Column("why_not", ""),
)  # fmt: skip
PARTS = (Column("part", "part"), Column("full", "full fine-tuning", "B"), Column("adapters", "adapters", "B"))


@dataclass(frozen=True)
class Method:
    """One row: full fine-tuning, or adapters of one rank and target."""

    method: str
    trainable: float
    share: float
    first_memory: float
    first_flop: float
    memory: float | None = None
    fits: bool = False
    step: float | None = None
    tokens_per_second: float | None = None
    speed: float | None = None  # tokens/s relative to full fine-tuning
    seconds: float | None = None
    usd: float | None = None
    plan: str = ""
    why_not: str = ""


def table(values: dict[str, Any], folders: tuple[str, ...]) -> Answer:
    """Full fine-tuning, and adapters of some ranks on attention or on every linear layer."""
    need(values, "model", "on", "gpus")
    if values.get("frozen_layers"):
        raise QuestionError("--frozen-layers is another way to train less: leave it out of textbook lora")
    asked = {name: value for name, value in values.items() if name not in ("lora_rank", "lora_targets")}
    ranks = (values["lora_rank"],) if "lora_rank" in values else RANKS
    targets = (values["lora_targets"],) if "lora_targets" in values else ("attention", "all")
    adapted = {(rank, target): {**asked, "lora_rank": rank, "lora_targets": target} for target in targets for rank in ranks}
    adapters = answer(adapted[ranks[0], targets[0]], folders)
    full = answer({"framework": adapters.groups[0].job.framework.name, **asked}, folders)  # the stack that has adapters, for both
    if full.rows > 1:
        raise QuestionError("textbook lora takes one plan: give one value for every option")
    methods = [_evaluate_method("full fine-tuning", full)]
    estimates: list[Estimate] = []
    for target in targets:
        for rank in ranks:
            estimate = answer(adapted[rank, target], folders) if estimates else adapters
            methods.append(_evaluate_method(f"rank {rank:g}, {TARGETS.get(target, target)}", estimate, methods[0]))
            estimates.append(estimate)
    first = methods[1]
    if not first.tokens_per_second:
        raise UnsupportedError(f"there is no estimate of {first.method} with this plan: {first.why_not}")
    group = adapters.place_of(0)[0]
    rows = [asdict(method) for method in methods]
    return Answer(
        title=f"Low-rank adapters of {group.job.model.name} on {group.cluster.accelerator.name}",
        headline=_write_headline(methods[0], first, group.plan.gpus[0]),
        tables=(Table("methods", "Full fine-tuning and adapters", filled_columns(METHODS, rows), rows), _memory_parts(full, adapters)),
        terms=_terms(full, adapters),
        assumptions=group.assumptions,
        warnings=[*group.warnings, caution("frozen-gradients")],
        feasible=first.fits,
        folders=folders,
    )


def _write_headline(full: Method, first: Method, gpus: float) -> list[str]:
    """Trained parameters, memory and speed of adapters against full fine-tuning."""
    speed = "full fine-tuning does not fit" if first.speed is None else f"{first.speed:.0%} of full fine-tuning's tokens/s"
    texts = (
        f"{first.method}: {units.show(first.trainable, 'parameter', 4)} of {units.show(full.trainable, 'parameter', 4)} are "
        f"trained ({first.share:.2%})",
        f"to first order weights and states take {units.show(first.first_memory, 'B', 4)} instead of "
        f"{units.show(full.first_memory, 'B', 4)}, and a token 4 FLOP per weight instead of 6, as frozen weights have no gradient",
        f"by estimate {units.show(first.memory or 0.0, 'B', 4)} instead of "
        f"{'-' if full.memory is None else units.show(full.memory, 'B', 4)} on each of {gpus:.0f}, each with its own plan, and {speed}",
    )
    told: tuple[tuple[str, dict[str, Any]], ...] = (
        ("trained", {"trainable": first.trainable, "full": full.trainable}),
        ("first-order", {"memory": first.first_memory, "full": full.first_memory}),
        ("estimate", {"memory": first.memory, "full": full.memory, "speed": first.speed}),
    )
    return [Sentence(text, code, values) for text, (code, values) in zip(texts, told, strict=True)]


def _evaluate_method(method: str, estimate: Estimate, full: Method | None = None) -> Method:
    """Count the trained parameters of one method to first order, and add its estimate."""
    row, job = estimate.row(0), estimate.place_of(0)[0].job
    parameters, trained = float(total_parameters(job.model)), _count_trainable(job)
    counted = Method(
        method, trained, trained / parameters, scalar(_first_order_memory(parameters, trained)), scalar(_first_order_flop(job))
    )
    if row["step"]["seconds"] is None:
        return replace(counted, why_not=row["warnings"][-1]["sentence"] if row["warnings"] else "no such plan")
    rate = row["throughput"]["tokens_per_second"]
    run = row["run"] or {}
    days = run.get("days")
    return replace(
        counted, memory=row["memory"]["device"], fits=row["memory"]["fits"], step=row["step"]["seconds"], tokens_per_second=rate,
        speed=rate / full.tokens_per_second if full and full.fits and full.tokens_per_second else None, plan=describe_plan(estimate),
        seconds=None if days is None else days * 86400.0, usd=run.get("usd"),
    )  # fmt: skip


def _count_trainable(job: Job) -> float:
    """Parameters with a gradient: the adapters of every layer, or all."""
    if not job.lora_rank:
        return float(total_parameters(job.model))
    return float(sum(kind.count * sum(layer_trained(job, kind)) for kind in kinds(job.model)))


def _first_order_memory(every: float, trained: float) -> Term:
    """16 bytes per trained parameter, 2 per frozen one."""
    if trained == every:
        return leaf("full fine-tuning to first order", states.training_static, "B", parameters=every)
    frozen = leaf("frozen weights", states.state, "B", parameters=every, bytes_per_parameter=2.0, shards=1.0)
    return total("adapters to first order", [frozen, leaf("adapters and their states", states.training_static, "B", parameters=trained)])


def _first_order_flop(job: Job) -> Term:
    """6 FLOP per trained parameter; 4 per frozen one: forward, and the gradient of its input."""
    every = float(active_parameters(job.model))
    if not job.lora_rank:
        return leaf("FLOP a token of full fine-tuning", flops.per_token, "FLOP", parameters=every)
    through = total("through frozen weights", [leaf("forward", flops.forward_per_token, "FLOP", parameters=every)], times=2.0)
    adapted = float(sum(kind.count * visited(job, kind) for kind in kinds(job.model)))  # only of experts that a token is routed to
    return total("FLOP a token of adapters", [through, leaf("through adapters", flops.per_token, "FLOP", parameters=adapted)])


def _terms(full: Estimate, adapters: Estimate) -> list[Term]:
    """The Terms of the table: memory and FLOPs to first order, and the estimate of adapters."""
    groups = [estimate.place_of(0)[0] for estimate in (full, adapters)]
    every = _count_trainable(groups[0].job)
    memory = [_first_order_memory(every, _count_trainable(group.job)) for group in groups]
    return [*memory, *(_first_order_flop(group.job) for group in groups), groups[1].memory.tree, groups[1].step.tree]


def _memory_parts(full: Estimate, adapters: Estimate) -> Table:
    """Estimated memory by part, side by side."""
    first, second = (
        {part.name: scalar(part) for part in estimate.place_of(0)[0].memory.tree["allocated"].parts} for estimate in (full, adapters)
    )
    rows = [
        {"part": name, "full": first.get(name), "adapters": second.get(name)}
        for name in dict.fromkeys([*first, *second])
        if first.get(name) or second.get(name)
    ]
    return Table("parts", "Estimated memory of the fullest accelerator", PARTS, rows)
