"""The optimisations ``lessons`` tries: what each changes in the question, which term of the iron law it moves, what it clashes with."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

Plan = Mapping[str, Any]  # a row's plan in the words of the options


@dataclass(frozen=True)
class Technique:
    """One optimisation. ``change`` gives the options it sets on a plan, or None where it means nothing there."""

    name: str
    moves: str  # operations | peak | efficiency | memory: the term of the iron law, or what it frees
    axis: str  # algorithm | machine | data: of the D.A.M. classes
    roofs: tuple[str, ...]  # whose time it is after; none where it moves work from one roof to another
    change: Callable[[Plan], dict[str, Any] | None]
    note: str = ""


def _set(name: str, value: Any) -> Callable[[Plan], dict[str, Any] | None]:
    """Set an option, where it is not set already."""
    return lambda plan: None if plan.get(name) == value else {name: value}


def _times(name: str, factor: float, when: Callable[[Plan], bool] = bool) -> Callable[[Plan], dict[str, Any] | None]:
    """Multiply an option that stays a whole number."""

    def change(plan: Plan) -> dict[str, Any] | None:
        value = plan[name] * factor
        return {name: value} if when(plan) and value >= 1 and value == int(value) else None

    return change


def _overlap(what: str, when: Callable[[Plan], bool]) -> Callable[[Plan], dict[str, Any] | None]:
    """Run one more kind of communication beside computation."""
    return lambda plan: {"overlap": frozenset({*plan["overlap"], what})} if what not in plan["overlap"] and when(plan) else None


def _shards(plan: Plan) -> str:
    return "dp_shard" if plan["zero"] > 0 else "dp_replicate"


def _model_ways(axis: str, factor: float) -> Callable[[Plan], dict[str, Any] | None]:
    """Split the model more or fewer ways along an axis, with data parallel taking up the rest of the accelerators."""

    def change(plan: Plan) -> dict[str, Any] | None:
        ways, ranks = plan[axis] * factor, plan[_shards(plan)] / factor
        if ways < 1 or ways != int(ways) or ranks < 1 or ranks != int(ranks):
            return None
        return {axis: ways, _shards(plan): ranks, **({"vpp": 1} if axis == "pp" else {})}

    return change


def _narrower(plan: Plan) -> dict[str, Any] | None:
    return {"precision": "fp8"} if plan["precision"] in ("bf16", "fp16") else None


def _flash(plan: Plan) -> dict[str, Any] | None:
    """A plan has on or off, the option a truth value."""
    return {"flash_attention": True} if plan["flash_attention"] == "off" else None


TECHNIQUES: tuple[Technique, ...] = (
    Technique("flash attention", "efficiency", "machine", ("hbm", "compute"), _flash, "scores stay on the chip"),
    Technique("no recomputation", "operations", "algorithm", ("compute",), _set("recompute", "none"), "keeps every activation"),
    Technique("selective recomputation", "memory", "machine", (), _set("recompute", "selective")),
    Technique("full recomputation", "memory", "machine", (), _set("recompute", "full"), "one more forward pass"),
    Technique("fp8 in the linear layers", "peak", "machine", ("compute",), _narrower, "validate the loss of a model before trusting it"),
    Technique("sequence parallel", "memory", "machine", ("hbm",), lambda p: {"sp": True} if p["tp"] > 1 and not p["sp"] else None),
    Technique(
        "overlap of tensor parallelism", "efficiency", "machine", ("network",), _overlap("tp", lambda p: p["tp"] > 1 and p["sp"])
    ),
    Technique("overlap of gradient reduction", "efficiency", "machine", ("network",), _overlap("grad-reduce", lambda p: p["dp"] > 1)),
    Technique(
        "overlap of weight gathering", "efficiency", "machine", ("network",), _overlap("param-gather", lambda p: p["zero"] in (1, 2))
    ),
    Technique("overlap of stages", "efficiency", "machine", ("network",), _overlap("pp", lambda p: p["pp"] > 1 and p["vpp"] > 1)),
    Technique("micro-batch doubled", "efficiency", "machine", (), _times("micro_batch_size", 2)),
    Technique("micro-batch halved", "efficiency", "machine", (), _times("micro_batch_size", 0.5)),
    Technique("more chunks a stage", "efficiency", "machine", (), _times("vpp", 2, lambda p: p["pp"] > 1)),
    Technique("half the stages", "efficiency", "machine", (), _model_ways("pp", 0.5)),
    Technique("twice the stages", "memory", "machine", (), _model_ways("pp", 2)),
    Technique("half the tensor parallelism", "efficiency", "machine", (), _model_ways("tp", 0.5)),
    Technique("twice the tensor parallelism", "memory", "machine", (), _model_ways("tp", 2)),
    Technique("CUDA graphs", "efficiency", "machine", ("dispatch",), _set("cuda_graphs", "full")),
    Technique("optimizer states sharded", "memory", "machine", (), lambda p: _sharded(p, 1)),
    Technique("weights sharded too", "memory", "machine", (), lambda p: _sharded(p, 3)),
    Technique("8-bit Adam", "memory", "algorithm", (), lambda p: {"optimizer": "adam8bit"} if p["optimizer"] == "adamw" else None),
    Technique("optimizer in the host", "memory", "machine", (), _set("offload", frozenset({"optimizer"}))),
    Technique("batch doubled by accumulation", "efficiency", "algorithm", (), _times("global_batch_size", 2)),
)  # fmt: skip


def _sharded(plan: Plan, stage: int) -> dict[str, Any] | None:
    """A higher ZeRO stage over all data-parallel ranks."""
    if plan["zero"] >= stage or plan["dp"] == 1:
        return None
    return {"zero": stage, "dp_replicate": 1, "dp_shard": plan["dp"]}


def clashes(technique: Technique, changes: Mapping[str, Mapping[str, Any] | None]) -> list[str]:
    """Names of the others that set an option this one sets too: one of them alone can be had."""
    mine = set(changes[technique.name] or ())
    return [name for name, theirs in changes.items() if name != technique.name and theirs and mine & set(theirs)]
