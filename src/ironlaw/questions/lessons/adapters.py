"""Low-rank adapters beside full fine-tuning: what is trained, held and computed, to first order and by estimate."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from ironlaw import units
from ironlaw.errors import QuestionError, UnsupportedError
from ironlaw.estimate.answer import Estimate, answer
from ironlaw.estimate.layer.adapters import visited
from ironlaw.estimate.layer.counts import active_parameters, total_parameters
from ironlaw.estimate.layer.kinds import kinds
from ironlaw.estimate.layer.trained import layer_trained
from ironlaw.law import flops, states
from ironlaw.questions.answer import Answer, Column, Table, need
from ironlaw.questions.compare.fewest import plan_words
from ironlaw.terms import Term, leaf, total

NAMED = {"all": "all linear layers", "mlp": "MLP"}
RANKS = (8.0, 16.0, 64.0)
ROWS = (
    Column("method", "method"), Column("trainable", "trains", "parameter"), Column("share", "of all", "%"),
    Column("first_memory", "first order", "B"), Column("first_flop", "FLOP a token", "FLOP"), Column("memory", "memory", "B"),
    Column("fits", "fits"), Column("step", "step", "s"), Column("tokens_per_second", "tokens/s", "1"), Column("speed", "speed", "%"),
    Column("seconds", "run takes", "s"), Column("usd", "USD", "USD"), Column("plan", "plan"), Column("why_not", ""),
)  # fmt: skip
PARTS = (Column("part", "part"), Column("full", "full fine-tuning", "B"), Column("adapters", "adapters", "B"))


def adapters(values: dict[str, Any], folders: tuple[str, ...]) -> Answer:
    """Full fine-tuning, and adapters of some ranks on attention or on every linear layer."""
    need(values, "model", "on", "gpus")
    if values.get("frozen_layers"):
        raise QuestionError("--frozen-layers is another way to train less: leave it out of --table lora")
    asked = {name: value for name, value in values.items() if name not in ("lora_rank", "lora_targets")}
    ranks = (values["lora_rank"],) if "lora_rank" in values else RANKS
    targets = (values["lora_targets"],) if "lora_targets" in values else ("attention", "all")
    full = answer(asked, folders)
    if full.rows > 1:
        raise QuestionError("--table lora takes one plan: give one value for every option")
    rows = [_row("full fine-tuning", full, None)]
    tried: list[tuple[dict[str, Any], Estimate]] = []
    for target in targets:
        for rank in ranks:
            one = answer({**asked, "lora_rank": rank, "lora_targets": target}, folders)
            rows.append(_row(f"rank {rank:g}, {NAMED.get(target, target)}", one, rows[0]))
            tried.append((rows[-1], one))
    row, one = tried[0]
    terms = _terms(full, one)
    by = {term.name: float(term.value) for term in terms[:4]}
    if not row["tokens_per_second"]:
        raise UnsupportedError(f"there is no estimate of {row['method']} with this plan: {row['why_not']}")
    headline = [
        f"{row['method']}: {units.show(row['trainable'], 'parameter', 4)} of {units.show(rows[0]['trainable'], 'parameter', 4)} are "
        f"trained ({row['share']:.2%})",
        f"to first order weights and states take {units.show(by['adapters to first order'], 'B', 4)} instead of "
        f"{units.show(by['full fine-tuning to first order'], 'B', 4)}, and a token 4 FLOP a weight instead of 6: no weight has a gradient",
        f"by estimate {units.show(row['memory'], 'B', 4)} instead of {units.show(rows[0]['memory'], 'B', 4)} on each of "
        f"{one.place_of(0)[0].plan.gpus[0]:.0f}, each with its own plan, and {_speed(row)}",
    ]
    group = one.place_of(0)[0]
    warnings = list(group.warnings)
    warnings.append("gradients flow through the frozen weights: most activations are kept, but not the inputs of layers without an adapter")
    return Answer(
        f"Low-rank adapters of {group.job.model.name} on {group.cluster.accelerator.name}",
        headline,
        (Table("methods", "Full fine-tuning and adapters", _shown(rows), rows), _parts(full, one)),
        terms,
        {},
        group.assumptions,
        warnings,
        bool(row["fits"]),
        folders,
    )


def _speed(row: Mapping[str, Any]) -> str:
    return "full fine-tuning does not fit" if row["speed"] is None else f"{row['speed']:.0%} of full fine-tuning's tokens/s"


def _trainable(one: Estimate) -> float:
    """What gets a gradient: the adapters of every layer, or everything."""
    job = one.place_of(0)[0].job
    if not job.lora_rank:
        return float(total_parameters(job.model))
    return float(sum(kind.count * sum(layer_trained(job, kind)) for kind in kinds(job.model)))


def _row(method: str, one: Estimate, full: Mapping[str, Any] | None) -> dict[str, Any]:
    row, job = one.row(0), one.place_of(0)[0].job
    every, trained = float(total_parameters(job.model)), _trainable(one)
    held, work = _held(every, trained), _work(job)
    told: dict[str, Any] = {
        "method": method, "trainable": trained, "share": trained / every, "first_memory": float(held.value),
        "first_flop": float(work.value),
        "memory": None, "fits": False, "step": None, "tokens_per_second": None, "speed": None, "seconds": None, "usd": None,
        "plan": "", "why_not": "",
    }  # fmt: skip
    if row["step"]["seconds"] is None:
        return {**told, "why_not": row["warnings"][-1] if row["warnings"] else "no such plan"}
    rate = row["throughput"]["tokens_per_second"]
    run = row["run"] or {}
    days = run.get("days")
    return {
        **told, "memory": row["memory"]["device"], "fits": row["memory"]["fits"], "step": row["step"]["seconds"], "tokens_per_second": rate,
        "speed": rate / full["tokens_per_second"] if full and full["fits"] else None, "plan": plan_words(one),
        "seconds": None if days is None else days * 86400.0, "usd": run.get("usd"),
    }  # fmt: skip


def _held(every: float, trained: float) -> Term:
    """First order: 16 bytes for what is trained, 2 for what is not."""
    if trained == every:
        return leaf("full fine-tuning to first order", states.training_static, "B", parameters=every)
    frozen = leaf("frozen weights", states.state, "B", parameters=every, bytes_per_parameter=2.0, shards=1.0)
    return total("adapters to first order", [frozen, leaf("adapters and their states", states.training_static, "B", parameters=trained)])


def _work(job: Any) -> Term:
    """First order: 6 FLOP for what is trained, 4 for what is not: forward, and the gradient of what comes before."""
    every = float(active_parameters(job.model))
    if not job.lora_rank:
        return leaf("FLOP a token of full fine-tuning", flops.per_token, "FLOP", parameters=every)
    through = total("through frozen weights", [leaf("forward", flops.forward_per_token, "FLOP", parameters=every)], times=2.0)
    met = float(sum(kind.count * visited(job, kind) for kind in kinds(job.model)))  # of experts' adapters those a token goes to
    return total("FLOP a token of adapters", [through, leaf("through adapters", flops.per_token, "FLOP", parameters=met)])


def _terms(full: Estimate, one: Estimate) -> list[Term]:
    jobs = [(found.place_of(0)[0], _trainable(found)) for found in (full, one)]
    every = jobs[0][1]
    first = [_held(every, trained) for _, trained in jobs] + [_work(group.job) for group, _ in jobs]
    return [*first, jobs[1][0].memory.tree, jobs[1][0].step.tree]


def _parts(full: Estimate, one: Estimate) -> Table:
    """Memory part by part, by estimate."""
    found = []
    for each in (full, one):
        tree = each.place_of(0)[0].memory.tree
        found.append({part.name: float(np.ravel(part.value)[0]) for part in tree["allocated"].parts})
    rows = [
        {"part": name, "full": found[0].get(name), "adapters": found[1].get(name)}
        for name in dict.fromkeys([*found[0], *found[1]])
        if found[0].get(name) or found[1].get(name)
    ]
    return Table("parts", "Memory by estimate, of the fullest accelerator", PARTS, rows)


def _shown(rows: list[dict[str, Any]]) -> tuple[Column, ...]:
    return tuple(c for c in ROWS if any(row.get(c.key) not in (None, "") for row in rows))
