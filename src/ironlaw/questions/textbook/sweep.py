"""The table of the note on training across data centres: constant MFU, accelerators for a step of a given time, accumulation."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from ironlaw import units
from ironlaw.cautions.record import Sentence
from ironlaw.cautions.table import caution
from ironlaw.errors import ValueRangeError
from ironlaw.estimate.bind.cluster import bind_precision, cluster_of
from ironlaw.estimate.bind.model import count_tokens
from ironlaw.estimate.bind.money import bind_pue
from ironlaw.estimate.layer.counts import active_parameters
from ironlaw.estimate.step.run import power_of
from ironlaw.law import activations, cost, energy, flops, run, states
from ironlaw.question import defaults
from ironlaw.question.assumptions import Assumptions, assume
from ironlaw.questions.answer import Answer, Column, Table, filled_columns
from ironlaw.questions.solve.workload import Workload
from ironlaw.questions.sweep.exchanges import check_sizes, tabulate_exchanges
from ironlaw.questions.sweep.options import LISTS
from ironlaw.terms import Term, leaf, plain

ROWS = (
    Column("model", "model"), Column("tokens", "run", "token"), Column("seq_len", "sequence", "1"), Column("batch", "batch", "token"),
    Column("steps", "steps", "1"), Column("flop", "FLOP, run", "FLOP"), Column("step_flop", "FLOP, step", "FLOP"),
    Column("gpus", "GPUs", "1"), Column("step", "step", "s"), Column("seconds", "run takes", "s"), Column("usd", "USD", "USD"),
    Column("power", "rated power", "W"), Column("energy", "energy", "J"),
)  # fmt: skip
ACCUMULATED = (
    Column("model", "model"), Column("tokens", "run", "token"), Column("seq_len", "sequence", "1"), Column("batch", "batch", "token"),
    Column("accumulate", "micro-batches", "1"), Column("gpus", "GPUs", "1"), Column("seconds", "run takes", "s"),
    Column("usd", "USD", "USD"), Column("activations", "activations", "B"),
    Column("selective", "without scores", "B"), Column("full", "checkpoints", "B"),
    Column("memory", "with states", "B"), Column("holding", "GPUs needed for memory", "1"), Column("holds", "enough"),
)  # fmt: skip


def ask_sweep(values: dict[str, Any], folders: tuple[str, ...]) -> Answer:
    """The rows of the sweep; with sites the table of the exchange between them."""
    check_sizes(values, (*LISTS, "parameters"))
    answer = sweep_by_hand(values, folders)
    if "sites" not in values:
        return answer
    models = "parameters" if "parameters" in values else "model"

    def asked_of(row: Mapping[str, Any], model: Any) -> dict[str, Any]:
        return {models: model, "mfu": values["mfu"], "gpus": row["gpus"]}

    return replace(answer, tables=[*answer.tables, tabulate_exchanges(values, answer["rows"], asked_of, folders, models)])


def sweep_by_hand(values: dict[str, Any], folders: tuple[str, ...]) -> Answer:
    """The rows of the sweep, and every row again with its batch in k micro-batches."""
    rows: list[dict[str, Any]] = []
    accumulated: list[dict[str, Any]] = []
    terms: list[Term] = []
    assumptions: Assumptions = []
    for asked, seq_len in itertools.product(values.get("model") or values["parameters"], values.get("seq_len", (None,))):
        workload = _bind_workload(values, asked, seq_len, folders)
        for row, rent in _make_rows(values, workload, folders):
            rows.append(row)
            terms += [workload.flop, rent]
            for part, part_terms in _accumulate(values, workload, row):
                accumulated.append(part)
                terms += part_terms
        listed = {item["name"] for item in assumptions}
        assumptions += [item for item in workload.assumptions if item["name"] not in listed]
    low, high = min(rows, key=lambda r: r["usd"]), max(rows, key=lambda r: r["usd"])
    text = (
        f"{low['usd']:,.0f} USD ({low['model']}, {units.show(low['tokens'], 'token', 4)}) to {high['usd']:,.0f} USD ({high['model']}, "
        f"{units.show(high['tokens'], 'token', 4)}); the batch sets how many accelerators run for how long, not the cost"
    )
    headline = [Sentence(text, "cost", {"least": low["usd"], "most": high["usd"]})]
    short = sum(not row["holds"] for row in accumulated)
    if short:
        text = f"{short} of {len(accumulated)} rows of accumulation have too few accelerators for states and activations"
        headline.append(Sentence(text, "too-few", {"rows": short, "of": len(accumulated)}))
    warnings = [caution("constant-mfu-rows", mfu=values["mfu"])]
    title = "Accumulation: 16 bytes a parameter; 34 s b h + 5 a s s b a layer, 34 s b h without scores, 2 s b h as checkpoints"
    tables = [
        Table("rows", f"Runs on {values['on']} at {values['mfu']:.0%} of the peak (simplified)", filled_columns(ROWS, rows), rows),
        Table("accumulated", title, ACCUMULATED, accumulated),
    ]
    if "rounding" not in values:
        assume(assumptions, "rounding of steps and accelerators", defaults.ROUNDING, "default")
    last = list({term.name: term for term in terms}.values())
    title = f"{len(rows):,} run{'s' if len(rows) != 1 else ''} on {values['on']} (simplified)"
    return Answer(title, headline, tables, last, assumptions=assumptions, warnings=warnings, folders=folders)


def _bind_workload(values: dict[str, Any], asked: Any, seq_len: float | None, folders: tuple[str, ...]) -> Workload:
    """The workload of a model or of a count of parameters; 6 FLOP per active parameter."""
    options: dict[str, Any] = {name: values[name] for name in ("on", "price", "precision") if name in values}
    options |= {"work": "6n", "parameters" if "parameters" in values else "model": asked} | ({"seq_len": seq_len} if seq_len else {})
    workload = Workload.of(options, folders)
    if "model" in options:
        workload.flop = leaf("FLOP per token", flops.per_token, "FLOP/token", parameters=float(active_parameters(workload.model)))
    return workload


def _make_rows(values: dict[str, Any], workload: Workload, folders: tuple[str, ...]) -> Iterator[tuple[dict[str, Any], Term]]:
    """The rows of one model and sequence length, each with its rent."""
    named: dict[str, Any] = {name: values[name] for name in ("on", "node", "fabric") if name in values}
    precision = values.get("precision") or bind_precision(values["on"], folders)
    cluster = cluster_of({**named, "precision": precision}, folders, workload.assumptions)
    pue = bind_pue(values.get("pue"), cluster, workload.assumptions)
    peak, per_token = plain(workload.peak), float(workload.flop.value)
    name = workload.model.name if "model" in values else workload.title
    rounding = run.ROUNDINGS[values.get("rounding", defaults.ROUNDING)]
    for asked, batch, gpus in itertools.product(values["tokens"], values["global_batch_tokens"], values.get("gpus", (None,))):
        tokens = count_tokens(asked, workload.parameters)
        if batch > tokens:
            raise ValueRangeError(f"--global-batch-tokens {batch:g} is more than the {tokens:g} tokens of the run")
        operations = per_token * batch
        count = gpus or float(run.gpus_needed(operations, values["step_time"], peak, values["mfu"], rounding))
        if count < 1.0:
            raise ValueRangeError(f"--rounding down leaves no accelerator for a batch of {batch:,.0f} tokens: give --rounding up")
        step = float(run.iron_law(operations, peak * count, values["mfu"]))
        steps = float(run.steps(tokens, batch, rounding))
        rent = leaf(f"rent of {name}", cost.rental, "USD", gpus=count, seconds=steps * step, price=workload.price)
        power = float(power_of(cluster, count, pue).value)
        yield {
            "model": name, "parameters": workload.parameters, "tokens": tokens, "seq_len": workload.seq_len, "batch": batch,
            "steps": steps, "flop": per_token * tokens, "step_flop": operations, "gpus": count, "step": step, "seconds": steps * step,
            "usd": float(rent.value), "power": power, "energy": float(energy.energy(power, steps * step)),
        }, rent  # fmt: skip


def _accumulate(values: dict[str, Any], workload: Workload, row: dict[str, Any]) -> Iterator[tuple[dict[str, Any], list[Term]]]:
    """The batch in k micro-batches on a k-th of the accelerators: k times as long, a k-th of the activations; with its Terms."""
    model = workload.model
    for k in values.get("accumulate", (1.0, 5.0, 10.0, 100.0)):
        sequences = row["batch"] / k / workload.seq_len
        if sequences < 1.0 and k > 1.0:
            continue  # a sequence is not split
        gpus = math.ceil(row["gpus"] / k)
        layer = leaf(
            "activations of a layer", activations.korthikanti_layer, "B", batch=max(sequences, 1.0), seq_len=workload.seq_len,
            hidden_size=float(model.hidden_size), num_attention_heads=float(model.num_attention_heads), tp=1.0, sp=0.0,
        )  # fmt: skip
        width = float(model.hidden_size)
        selective = float(activations.korthikanti_layer(max(sequences, 1.0), workload.seq_len, width, 0.0, 1.0, 0.0))
        full = float(activations.checkpoint(max(sequences, 1.0) * workload.seq_len, width, 1.0, 0.0, 2.0))
        static = leaf("static memory", states.training_static, "B", parameters=workload.parameters)
        stored = float(layer.value) * model.num_hidden_layers
        memory = stored + float(static.value)
        needed = math.ceil(memory / workload.capacity)
        yield {
            **{name: row[name] for name in ("model", "tokens", "seq_len", "batch", "usd")}, "accumulate": k, "gpus": gpus,
            "seconds": row["seconds"] * row["gpus"] / gpus, "activations": stored,
            "selective": selective * model.num_hidden_layers, "full": full * model.num_hidden_layers, "memory": memory,
            "holding": needed, "holds": gpus >= needed,
        }, [layer, static]  # fmt: skip
