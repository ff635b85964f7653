"""Changes that a check tries: each option that a file sets badly, what is set in its place, and the gain that makes it worth telling."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

LEAST_GAIN = 0.02  # of the step time, or of the memory of an accelerator: what differs by less cannot be told from noise
CERTAINTY = 0.8  # how likely the changed run must be to fit


class Trial(NamedTuple):
    """One change: the kind of finding, the option that it is about, when it is tried, and what is set."""

    id: str
    option: str
    when: Callable[[Mapping[str, Any]], bool]
    change: Callable[[Mapping[str, Any]], dict[str, Any]]
    says: str
    for_memory: bool = False  # told for what it saves, too


def _number(plan: Mapping[str, Any], name: str) -> float:
    return float(plan.get(name) or 0)


def _with(**values: Any) -> Callable[[Mapping[str, Any]], dict[str, Any]]:
    return lambda _: dict(values)


def _micro(times: int) -> Callable[[Mapping[str, Any]], dict[str, Any]]:
    return lambda plan: {"micro_batch_size": int(_number(plan, "micro_batch_size") * times)}


def _can_grow(times: int) -> Callable[[Mapping[str, Any]], bool]:
    """True where micro-batches may be so many times as large with the same batch, and no pipeline needs them small."""
    return lambda plan: _number(plan, "pp") <= 1 and plan.get("num_microbatches", 0) >= times and plan["num_microbatches"] % times == 0


def _is(option: str, *values: Any) -> Callable[[Mapping[str, Any]], bool]:
    return lambda plan: plan.get(option) in values


TRIALS = (
    Trial("recomputation-not-needed", "recompute", lambda plan: plan.get("recompute", "none") != "none", _with(recompute="none"),
        "no recomputation"),
    Trial("recomputation-not-needed", "recompute", _is("recompute", "full"), _with(recompute="selective"), "attention alone recomputed"),
    Trial("recomputation-not-needed", "recompute", _is("recompute", "full"), _with(recompute="every:2"), "every second layer recomputed"),
    Trial("small-micro-batch", "micro_batch_size", _can_grow(4), _micro(4), "micro-batches four times as large"),
    Trial("small-micro-batch", "micro_batch_size", _can_grow(2), _micro(2), "micro-batches twice as large"),
    Trial("offloading-not-needed", "offload", lambda plan: bool(plan.get("offload")) and plan["offload"] != "none", _with(offload="none"),
        "nothing offloaded"),
    Trial("sharding-more-than-needed", "zero", _is("zero", 3), _with(zero=2), "whole weights (ZeRO 2)"),
    Trial("sharding-more-than-needed", "zero", _is("zero", 3), _with(zero=1), "sharded states alone (ZeRO 1)"),
    Trial("optimizer-not-sharded", "zero", lambda plan: _number(plan, "zero") == 0 and _number(plan, "dp") > 1, _with(zero=1),
        "the optimizer's states sharded (ZeRO 1)", for_memory=True),
    Trial("optimizer-not-sharded", "zero", lambda plan: _number(plan, "zero") == 0 and _number(plan, "dp") > 1, _with(zero=2),
        "the optimizer's states and gradients sharded (ZeRO 2)", for_memory=True),
    Trial("sequence-parallel-off", "sp", lambda plan: _number(plan, "tp") > 1 and plan.get("sp") is False, _with(sp="on"),
        "sequence parallelism", for_memory=True),
    Trial("overlap-missing", "overlap", lambda plan: "overlap" in plan, _with(overlap="grad-reduce,param-gather"),
        "overlapped reduction of gradients and gathering of weights"),
    Trial("wide-gradients", "gradient_dtype", _is("gradient_dtype", "fp32"), _with(gradient_dtype="bf16"), "gradients in bf16",
        for_memory=True),
    Trial("fp32-products", "precision", _is("precision", "fp32", "tf32"), _with(precision="bf16"), "mixed precision in bf16"),
    Trial("attention-not-fused", "flash_attention", _is("flash_attention", "off", False), _with(flash_attention="on"), "flash attention",
        for_memory=True),
    Trial("tensor-parallel-across-domains", "tp", lambda plan: _number(plan, "tp") > plan.get("domain", float("inf")),
        lambda plan: {"tp": int(plan["domain"])}, "tensor parallelism inside a scale-up domain"),
)  # fmt: skip


def remedies(plan: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Changes that free memory: one by one, then together."""
    micro = {"micro_batch_size": 1} if _number(plan, "micro_batch_size") > 1 else {}
    sharded = {"zero": 3} if _number(plan, "dp") > 1 and _number(plan, "zero") < 3 else {}
    states = {"zero": 1} if _number(plan, "dp") > 1 and _number(plan, "zero") < 1 else {}
    kept = {"recompute": "full"} if plan.get("recompute") != "full" else {}
    moved = {"offload": "optimizer"} if plan.get("offload") in (None, "none", []) else {}
    for parts in (
        (micro,),
        (kept,),
        (states,),
        (sharded,),
        (micro, kept),
        (sharded, kept),
        (sharded, micro, kept),
        (sharded, micro, kept, moved),
    ):
        change: dict[str, Any] = {name: value for part in parts for name, value in part.items()}
        if change:
            yield change
