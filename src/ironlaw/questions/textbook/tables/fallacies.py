"""Fallacies and pitfalls of training, each with the number that contradicts it."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from ironlaw import units
from ironlaw.cautions.record import Sentence
from ironlaw.cluster import Cluster
from ironlaw.errors import QuestionError
from ironlaw.estimate.answer.estimate import answer
from ironlaw.estimate.bind.cluster import cluster_of
from ironlaw.estimate.bind.money import Money, bind_money
from ironlaw.estimate.step.run import power_of
from ironlaw.law import batches, cost, dataloading, energy, flops, formats, scaling, states
from ironlaw.question.asked import asked_of
from ironlaw.question.assumptions import Assumptions, assume
from ironlaw.questions.answer import Answer, Column, Table
from ironlaw.terms import Term, leaf, scalar

MODEL, ON, BATCH = "gpt-2", "a100-sxm-80gb", 64.0
TOKENS = 1e6  # money, energy and carbon are of so many
COLUMNS = (Column("fallacy", "fallacy"), Column("said", "fact"), Column("command", "command"))


@dataclass(frozen=True, eq=False)
class Fallacy:
    """One belief, the fact with its numbers, and the command that answers it."""

    key: str
    belief: str
    fact: str
    command: str
    numbers: dict[str, float]
    terms: tuple[Term, ...] = ()

    def row(self) -> dict[str, Any]:
        """The row of the table."""
        return {"key": self.key, "fallacy": self.belief, "said": self.fact, "command": self.command, **self.numbers}


def table(values: dict[str, Any], folders: tuple[str, ...]) -> Answer:
    """All fallacies, with the numbers of a small model on one kind of accelerator, or of those given."""
    notes: Assumptions = []
    asked = {"model": MODEL, "on": ON, **values}
    for name in ("model", "on"):
        if name not in values:
            assume(notes, name, asked[name], "default")
    asked.setdefault("global_batch_size", BATCH)
    asked_money: dict[str, Any] = {name: asked.pop(name) for name in ("price", "grid", "pue") if name in asked}
    cluster = cluster_of({"on": asked["on"]}, folders, [])
    money = bind_money(asked_of({**asked, **asked_money}), cluster, folders, notes)
    fallacies = [
        _model_size(), _static_memory(), _accelerator_count(asked, folders), _learning_rate(), *_mixed_precision(asked, folders),
        _accumulation(asked, cluster, money, folders), _input_pipeline(),
    ]  # fmt: skip
    rows = [fallacy.row() for fallacy in fallacies]
    headline = [
        Sentence(f"{len(rows)} fallacies, each with the numbers against it", "count", {"fallacies": len(rows)}),
        Sentence(f"{rows[0]['fallacy']}: {rows[0]['said']}", "first", {"key": rows[0]["key"]}),
    ]
    terms = [term for fallacy in fallacies for term in fallacy.terms]
    tables = (Table("fallacies", "Fallacies and facts", COLUMNS, rows),)
    return Answer("Fallacies and pitfalls", headline, tables, terms, assumptions=notes, folders=folders)


def _model_size() -> Fallacy:
    """The loss of 20B parameters for the compute of 7B with 20 tokens per parameter."""
    small, large = 7e9, 20e9
    tokens = float(scaling.rule_tokens(small, 20.0))
    fewer = float(scaling.affordable_tokens(float(flops.training(small, tokens)), large))
    pair = tuple(
        leaf(f"loss of {n / 1e9:g}B on {t / 1e9:.0f}B tokens", scaling.loss, "1", parameters=n, tokens=t, fit=0.0)
        for n, t in ((small, tokens), (large, fewer))
    )
    losses = [float(term.value) for term in pair]
    return Fallacy(
        key="size",
        belief="a larger model is a better one",
        fact=f"for the compute of 7B on {tokens / 1e9:.0f}B tokens, 20B sees {fewer / 1e9:.0f}B: loss {losses[1]:.3f}, not {losses[0]:.3f}",
        command=f"ironlaw scaling --parameters 20B --tokens {fewer / 1e9:.0f}B",
        numbers={"small": losses[0], "large": losses[1]},
        terms=pair,
    )


def _static_memory() -> Fallacy:
    """The memory of 20B parameters in training is more than their bytes."""
    static = leaf("static memory of 20B", states.training_static, "B", parameters=20e9)
    return Fallacy(
        key="memory",
        belief="20B take 200 GB",
        fact=f"{float(static.value) / 1e9:.0f} GB with gradients and master weights, before any activation",
        command="ironlaw solve --parameters 20B --on h100-sxm --tokens 400B --gpus 8 --mfu 0.4",
        numbers={"bytes": float(static.value)},
        terms=(static,),
    )


def _accelerator_count(asked: dict[str, Any], folders: tuple[str, ...]) -> Fallacy:
    """Speed-up of eight accelerators at one global batch, and at a batch of eight sequences, too small to split."""
    speedups = {}
    for batch in (asked["global_batch_size"], 8.0):
        rows = [_estimate_row({**asked, "gpus": n, "global_batch_size": batch}, folders) for n in (1.0, 8.0)]
        speedups[batch] = rows[1]["throughput"]["tokens_per_second"] / rows[0]["throughput"]["tokens_per_second"]
    wide, narrow = speedups[asked["global_batch_size"]], speedups[8.0]
    return Fallacy(
        key="count",
        belief="8 accelerators are 8 times as fast",
        fact=f"{_name(asked)}: {wide:.2f} times with {asked['global_batch_size']:g} sequences per step, {narrow:.2f} times with 8",
        command=f"ironlaw textbook communication-tax {_name(asked)} --on {asked['on']} --gpus 8 --global-batch-size 8",
        numbers={"speedup": wide, "speedup_small": narrow},
    )


def _learning_rate() -> Fallacy:
    """Two rules that scale a learning rate with the batch give different rates."""
    sizes = {"learning_rate": 0.1, "tokens_per_step": 4096.0, "base_tokens_per_step": 512.0}
    linear = leaf("linear rule", batches.linear_learning_rate, "1", **sizes)
    root = leaf("square-root rule", batches.root_learning_rate, "1", **sizes)
    return Fallacy(
        key="learning_rate",
        belief="a learning rate is right at any batch size",
        fact=f"0.1 at 512 is {float(linear.value):g} at 4096 by the linear rule, {float(root.value):.3g} by the square-root rule for Adam",
        command="ironlaw scaling --parameters 70B --tokens 1.4T --learning-rate 0.1 --base-batch-tokens 512 --global-batch-tokens 4096",
        numbers={"linear": float(linear.value), "root": float(root.value)},
        terms=(linear, root),
    )


def _mixed_precision(asked: dict[str, Any], folders: tuple[str, ...]) -> list[Fallacy]:
    """Speed and memory of fp16 against fp32, and the range that fp16 lacks."""
    options = {**asked, "gpus": 1.0, "micro_batch_size": min(8.0, asked["global_batch_size"]), "recompute": "none"}
    full = _estimate_row({**options, "precision": "fp32"}, folders)
    half = _estimate_row({**options, "precision": "fp16"}, folders)
    faster = half["throughput"]["tokens_per_second"] / full["throughput"]["tokens_per_second"]
    least = leaf("least subnormal fp16", formats.least_subnormal, "1", exponent_bits=5.0, mantissa_bits=10.0)
    top = leaf("largest fp16", formats.largest, "1", exponent_bits=5.0, mantissa_bits=10.0, infinities=1.0, nan_code=0.0)
    less = 1.0 - half["memory"]["allocated"] / full["memory"]["allocated"]
    return [
        Fallacy(
            key="precision",
            belief="mixed precision is a switch",
            fact=f"{faster:.2f} times as fast as fp32 without tensor cores on {asked['on']}; fp16 loses "
            f"gradients below {float(least.value):.2g} and overflows at {float(top.value):,.0f}: scale the loss, and check it",
            command="ironlaw textbook formats",
            numbers={"faster": faster},
            terms=(least, top),
        ),
        Fallacy(
            key="half_memory",
            belief="mixed precision halves memory",
            fact=f"weights, gradients and states take 16 bytes per parameter in both; activations shrink: {_name(asked)} saves {less:.0%}",
            command=f"ironlaw estimate {_name(asked)} --on {asked['on']} --gpus 1 --precision fp32 "
            f"--global-batch-size {asked['global_batch_size']:g}",
            numbers={"saved": less},
        ),
    ]


def _cost_tokens(row: dict[str, Any], cluster: Cluster, money: Money) -> dict[str, float]:
    """Money, energy and carbon of a million tokens on one accelerator."""
    seconds = TOKENS / row["throughput"]["tokens_per_second"]
    joules = scalar(energy.energy(scalar(power_of(cluster, 1.0, money.pue)), seconds))
    usd = scalar(cost.rental(1.0, seconds, money.price.value))
    return {"usd": usd, "joules": joules, "kg_co2e": scalar(energy.carbon(joules, money.intensity.value))}


def _accumulation(asked: dict[str, Any], cluster: Cluster, money: Money, folders: tuple[str, ...]) -> Fallacy:
    """A large micro-batch and the smallest at one global batch: memory shrinks; time, money, energy and carbon do not."""
    batch = asked["global_batch_size"]
    sizes = [min(16.0, batch), 1.0]
    wide, narrow = (_estimate_row({**asked, "gpus": 1.0, "micro_batch_size": size}, folders) for size in sizes)
    memory = wide["memory"]["allocated"] / narrow["memory"]["allocated"]
    longer = narrow["step"]["seconds"] / wide["step"]["seconds"] - 1.0
    before, after = (_cost_tokens(row, cluster, money) for row in (wide, narrow))
    spent = [f"{units.show(before[key], unit)} to {units.show(after[key], unit)}" for key, unit in (("joules", "J"), ("kg_co2e", "kg"))]
    paid = [] if math.isnan(before["usd"]) else [f"{before['usd']:.3g} to {after['usd']:.3g} USD"]
    return Fallacy(
        key="accumulation",
        belief="accumulation saves money",
        fact=f"micro-batch {sizes[0]:g} to 1 takes {memory:.3g} times less memory ({units.show(wide['memory']['allocated'], 'B')} to "
        f"{units.show(narrow['memory']['allocated'], 'B')}) and {longer:+.0%} time; a million tokens: {', '.join([*paid, *spent])} CO2e",
        command=f"ironlaw estimate {_name(asked)} --on {asked['on']} --gpus 1 --micro-batch-size 1 --global-batch-size {batch:g}",
        numbers={"memory_times": memory, "longer": longer, **before, **{f"{name}_accumulated": value for name, value in after.items()}},
    )


def _input_pipeline() -> Fallacy:
    """A loader of 35 s and a step of 55 s, serial and overlapped."""
    stages = {"fetch": 20.0, "process": 10.0, "transfer": 5.0}
    orders = ((0, "serial"), (1, "overlapped"))
    supply = [leaf(f"supply {order}", dataloading.supply_time, "s", **stages, overlapped=at) for at, order in orders]
    waiting = [
        leaf(f"waiting {order}", dataloading.waiting, "s", supply_time=supply[at].value, step_time=55.0, overlapped=at)
        for at, order in orders
    ]
    serial, overlapped = (55.0 + float(term.value) for term in waiting)
    return Fallacy(
        key="data",
        belief="the input pipeline does not matter",
        fact=f"35 s of input before 55 s of training is {serial:g} s, overlapped {overlapped:g}: {1 - overlapped / serial:.1%} less"
        f" time, {serial / overlapped:.2f} times the speed",
        command="ironlaw data --step-time 55s --batch 1 --sample-size 1MB --transform-time 35s --workers 1 --on a100-sxm-80gb"
        " --timeline on",
        numbers={"serial": serial, "overlapped": overlapped},
        terms=(*supply, *waiting),
    )


def _estimate_row(asked: dict[str, Any], folders: tuple[str, ...]) -> dict[str, Any]:
    """The estimate of one run; QuestionError where it has no plan."""
    row: dict[str, Any] = answer(asked, folders).row(0)
    if row["step"]["seconds"] is None:
        raise QuestionError(f"{_name(asked)} on {asked['gpus']:g} x {asked['on']}: no such plan; name another model or accelerator")
    return row


def _name(asked: dict[str, Any]) -> str:
    return asked["model"] if isinstance(asked["model"], str) else "the model"
