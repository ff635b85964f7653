"""The optimisations that ``lessons`` tries: the options each sets, what it improves, and its conflicts."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

Plan = Mapping[str, Any]  # a row's plan, by the names of the options
Change = Callable[[Plan], dict[str, Any] | None]


@dataclass(frozen=True)
class Technique:
    """One optimisation. ``change`` returns the options it sets on a plan, or None where it does not apply."""

    name: str
    moves: str  # operations | peak | efficiency | memory: the term of the iron law it improves, or memory
    axis: str  # algorithm | machine | data: the D.A.M. class
    roofs: tuple[str, ...]  # bounds it addresses; none where it moves time from one to another
    change: Change


def _set(name: str, value: Any) -> Change:
    """Set an option that has another value."""
    return lambda plan: None if plan.get(name) == value else {name: value}


def _replace(name: str, old: tuple[str, ...], new: Any) -> Change:
    """Set an option that has one of the old values."""
    return lambda plan: {name: new} if plan[name] in old else None


def _multiply(name: str, factor: float, when: Callable[[Plan], bool] = bool) -> Change:
    """Multiply an option that stays a whole number."""

    def change(plan: Plan) -> dict[str, Any] | None:
        value = plan[name] * factor
        return {name: value} if when(plan) and value >= 1 and value == int(value) else None

    return change


def _overlap(communication: str, when: Callable[[Plan], bool]) -> Change:
    """Overlap one more kind of communication with computation."""
    return lambda plan: (
        {"overlap": frozenset({*plan["overlap"], communication})} if communication not in plan["overlap"] and when(plan) else None
    )


def _split_model(axis: str, factor: float) -> Change:
    """Multiply the ranks of an axis, and divide data-parallel ranks by as much."""

    def change(plan: Plan) -> dict[str, Any] | None:
        """The options that move ranks from data parallelism to this axis."""
        data_parallel = "dp_shard" if plan["zero"] > 0 else "dp_replicate"
        ranks, replicas = plan[axis] * factor, plan[data_parallel] / factor
        if ranks < 1 or ranks != int(ranks) or replicas < 1 or replicas != int(replicas):
            return None
        return {axis: ranks, data_parallel: replicas, **({"vpp": 1} if axis == "pp" else {})}

    return change


def _shard(stage: int) -> Change:
    """Set a higher ZeRO stage over all data-parallel ranks."""
    return lambda plan: {"zero": stage, "dp_replicate": 1, "dp_shard": plan["dp"]} if plan["zero"] < stage and plan["dp"] > 1 else None


TECHNIQUES: tuple[Technique, ...] = (
    Technique("flash attention", "efficiency", "machine", ("hbm", "compute"), _replace("flash_attention", ("off",), True)),
    Technique("no recomputation", "operations", "algorithm", ("compute",), _set("recompute", "none")),
    Technique("selective recomputation", "memory", "machine", (), _set("recompute", "selective")),
    Technique("full recomputation", "memory", "machine", (), _set("recompute", "full")),
    Technique("fp8 in the linear layers", "peak", "machine", ("compute",), _replace("precision", ("bf16", "fp16"), "fp8")),
    Technique("sequence parallel", "memory", "machine", ("hbm",), lambda p: {"sp": True} if p["tp"] > 1 and not p["sp"] else None),
    Technique(
        "overlap of tensor parallelism", "efficiency", "machine", ("network",), _overlap("tp", lambda p: p["tp"] > 1 and p["sp"])
    ),
    Technique("overlap of gradient reduction", "efficiency", "machine", ("network",), _overlap("grad-reduce", lambda p: p["dp"] > 1)),
    Technique(
        "overlap of weight gathering", "efficiency", "machine", ("network",), _overlap("param-gather", lambda p: p["zero"] in (1, 2))
    ),
    Technique("overlap of stages", "efficiency", "machine", ("network",), _overlap("pp", lambda p: p["pp"] > 1 and p["vpp"] > 1)),
    Technique("micro-batch doubled", "efficiency", "machine", (), _multiply("micro_batch_size", 2)),
    Technique("micro-batch halved", "efficiency", "machine", (), _multiply("micro_batch_size", 0.5)),
    Technique("more chunks a stage", "efficiency", "machine", (), _multiply("vpp", 2, lambda p: p["pp"] > 1)),
    Technique("half the stages", "efficiency", "machine", (), _split_model("pp", 0.5)),
    Technique("twice the stages", "memory", "machine", (), _split_model("pp", 2)),
    Technique("half the tensor parallelism", "efficiency", "machine", (), _split_model("tp", 0.5)),
    Technique("twice the tensor parallelism", "memory", "machine", (), _split_model("tp", 2)),
    Technique("CUDA graphs", "efficiency", "machine", ("dispatch",), _set("cuda_graphs", "full")),
    Technique("optimizer states sharded", "memory", "machine", (), _shard(1)),
    Technique("weights sharded too", "memory", "machine", (), _shard(3)),
    Technique("8-bit Adam", "memory", "algorithm", (), _replace("optimizer", ("adamw",), "adam8bit")),
    Technique("optimizer in the host", "memory", "machine", (), _set("offload", frozenset({"optimizer"}))),
    Technique("batch doubled by accumulation", "efficiency", "algorithm", (), _multiply("global_batch_size", 2)),
)  # fmt: skip


def conflicts(technique: Technique, changes: Mapping[str, Mapping[str, Any] | None]) -> tuple[str, ...]:
    """Names of the other techniques that set an option this one sets: only one of them can be used."""
    options = set(changes[technique.name] or ())
    return tuple(name for name, others in changes.items() if name != technique.name and others and options & set(others))
