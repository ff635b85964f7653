"""Gradient accumulation by estimate: rows with k micro-batches a step, under one plan, and the same batch on k times fewer accelerators."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import Any

from ironlaw import units
from ironlaw.cautions.record import Caution
from ironlaw.errors import QuestionError, UnitError, UnknownNameError
from ironlaw.estimate.answer.estimate import Estimate, answer
from ironlaw.estimate.answer.group import Group
from ironlaw.estimate.bind.model import bind_model, count_tokens, plain_model
from ironlaw.estimate.layer.counts import total_parameters
from ironlaw.estimate.step.step import MICRO_BATCHES
from ironlaw.estimate.what_if.near_counts import no_such_plan, why_impossible
from ironlaw.law import batches
from ironlaw.law import run as law
from ironlaw.question import defaults
from ironlaw.question.assumptions import Assumptions, assume
from ironlaw.question.words import PerParameter
from ironlaw.questions.answer import Answer, Column, Table, filled_columns
from ironlaw.questions.sweep.options import PASSED
from ironlaw.terms import Term, leaf, scalar

WHICH = (
    Column("model", "model"), Column("tokens", "run", "token"), Column("seq_len", "sequence", "1"), Column("accumulate", "k", "1"),
    Column("gpus", "GPUs", "1"), Column("batch", "batch", "token"),
)  # fmt: skip
ROWS = (
    *WHICH, Column("memory", "memory", "B"), Column("at_once", "without accumulation", "B"), Column("fits", "fits"),
    Column("micro", "micro-batch", "s"), Column("once", "once a step", "s"), Column("step", "step", "s"),
    Column("simple", "k T + (k - 1) sync", "s"), Column("saved", "syncs saved", "%"), Column("tokens_per_second", "tokens/s", "1"),
    Column("mfu", "MFU", "%"), Column("steps", "steps", "1"), Column("seconds", "run takes", "s"), Column("usd", "USD", "USD"),
    Column("why_not", ""),
)  # fmt: skip
FEWER = (
    *WHICH, Column("memory", "memory", "B"), Column("fits", "fits"), Column("step", "step", "s"), Column("seconds", "run takes", "s"),
    Column("gpu_seconds", "GPU time", "s"), Column("usd", "USD", "USD"), Column("why_not", ""),
)  # fmt: skip
SHARDS = ("dp_replicate", "dp_shard")  # of a plan; other accelerators have other numbers of both
LITTLE = 0.25  # difference of the GPU time of two rows that counts as little beside their numbers of accelerators
HELD = ("tp", "pp", "vpp", "cp", "ep", "zero", "micro_batch_size", *SHARDS)


def sweep_accumulation(values: Mapping[str, Any], folders: tuple[str, ...]) -> Answer:
    """Rows for each number of micro-batches under one plan: memory of one micro-batch, time, money and what is synchronised less."""
    rows: list[dict[str, Any]] = []
    fewer: list[dict[str, Any]] = []
    terms: list[Term] = []
    notes: Assumptions = []
    warnings: list[Caution] = []
    counts = sorted(values["accumulate"])
    lists = [values.get(name, (None,)) for name in ("model", "tokens", "seq_len", "gpus")]
    for model, tokens, seq_len, gpus in itertools.product(*lists):
        asked = _bind_question(values, model, tokens, seq_len, gpus, folders)
        held, group = _choose_plan(asked, folders)
        made = [_accumulated_row(asked, held, k, folders) for k in counts]
        rows += [row for row, _ in made]
        terms += [term for _, found in made for term in found]
        fewer += [_fewer_row(asked, held, k, counts[-1], folders) for k in reversed(counts)]
        known = {item["name"] for item in notes} | {"global_batch_size"}
        notes += [item for item in group.assumptions if item["name"] not in known]
        warnings += group.warnings
        if "plan" not in known:
            assume(notes, "plan", f"{_describe(held)}, for all rows", "chosen")
    fitting = [row for row in rows if row["fits"]]
    tables = [
        Table("rows", f"Accumulation on {values['on']}: k micro-batches a step, one plan, by estimate", filled_columns(ROWS, rows), rows),
        Table("fewer", "The same batch on fewer accelerators", filled_columns(FEWER, fewer), fewer),
    ]
    title = f"Gradient accumulation on {values['on']}"
    return Answer(
        title, _write_headline(rows, fewer), tables, list({term.name: term for term in terms}.values()), assumptions=notes,
        warnings=list(dict.fromkeys(warnings)), feasible=bool(fitting), folders=folders,
    )  # fmt: skip


def _bind_question(
    values: Mapping[str, Any], model: Any, tokens: Any, seq_len: float | None, gpus: float, folders: tuple[str, ...]
) -> dict[str, Any]:
    """The options of the estimate that all rows share; tokens per parameter as a count."""
    record = plain_model(bind_model(model, folders)[0])
    asked = {name: values[name] for name in ("on", *PASSED, "price", "pue") if name in values}
    length = seq_len or defaults.seq_len(record.max_position_embeddings)
    run = count_tokens(tokens, float(total_parameters(record))) if isinstance(tokens, PerParameter) else tokens
    return {**asked, "model": model, "tokens": run, "seq_len": length, "gpus": gpus}


def _choose_plan(asked: Mapping[str, Any], folders: tuple[str, ...]) -> tuple[dict[str, Any], Group]:
    """The plan that all rows share: the one that an estimate chooses at its default batch."""
    estimate = answer(dict(asked), folders)
    row = estimate.row(0)
    if row["step"]["seconds"] is None:
        raise no_such_plan(estimate)
    plan = row["plan"]
    held: dict[str, Any] = {name: float(plan[name]) for name in HELD}
    held |= {"sp": plan["sp"], "recompute": plan["recompute"], "framework": plan["framework"], "dp": float(plan["dp"])}
    return held, estimate.groups[0]


def _describe(held: Mapping[str, Any]) -> str:
    """The plan in a few words."""
    axes = " ".join(f"{name} {held[name]:g}" for name in ("tp", "pp", "cp", "ep", "dp") if held[name] > 1.0)
    return f"{axes or 'dp 1'}, zero {held['zero']:g}, micro-batch {held['micro_batch_size']:g}, recompute {held['recompute']}"


def _estimate(asked: Mapping[str, Any], held: Mapping[str, Any], change: Mapping[str, Any], folders: tuple[str, ...]) -> Estimate | str:
    """The estimate of a row, or why there is none."""
    plan = {name: value for name, value in held.items() if name != "dp"}
    options = {**asked, **plan, **change}
    try:
        estimate = answer({name: value for name, value in options.items() if value is not None}, folders)
    except (UnknownNameError, UnitError):
        raise  # the option is wrong for every row
    except QuestionError as error:
        return str(error)
    return estimate if estimate.row(0)["step"]["seconds"] is not None else f"no such plan: {why_impossible(estimate)}"


def _start_row(asked: Mapping[str, Any], k: float, gpus: float, sequences: float, folders: tuple[str, ...]) -> dict[str, Any]:
    """The columns that say which row it is."""
    model = bind_model(asked["model"], folders)[0].name
    return {
        "model": model, "tokens": asked["tokens"], "seq_len": asked["seq_len"], "accumulate": k, "gpus": gpus,
        "batch": sequences * asked["seq_len"], "fits": None,
    }  # fmt: skip


def _accumulated_row(
    asked: Mapping[str, Any], held: Mapping[str, Any], k: float, folders: tuple[str, ...]
) -> tuple[dict[str, Any], list[Term]]:
    """The row of k micro-batches: the estimate, its parts per micro-batch and per step, and the simplified time beside it."""
    inputs = {"num_microbatches": k, "micro_batch_size": held["micro_batch_size"], "data_parallel": held["dp"]}
    batch = leaf(f"batch of {k:g} micro-batches", batches.accumulated_batch, "1", **inputs)
    start = _start_row(asked, k, asked["gpus"], scalar(batch), folders)
    estimate = _estimate(asked, held, {"global_batch_size": scalar(batch)}, folders)
    if isinstance(estimate, str):
        return {**start, "why_not": estimate}, []
    data, tree = estimate.row(0), estimate.groups[0].step.tree
    run, memory, step = data["run"], data["memory"], data["step"]["seconds"]
    micro = scalar(tree[MICRO_BATCHES]) / k
    parts = {"num_microbatches": k, "micro_time": micro, "sync_time": step - k * micro}
    whole = leaf(f"step of {k:g} micro-batches", batches.accumulated_step, "s", **parts)
    simple = leaf(f"simplified step of {k:g} micro-batches", batches.accumulated_step_simple, "s", **parts)
    saved = leaf(f"synchronisation saved by {k:g} micro-batches", batches.synchronisation_saved, "1", num_microbatches=k)
    return {
        **start, "memory": memory["device"], "at_once": _memory_at_once(asked, held, k, scalar(batch), folders), "fits": memory["fits"],
        "micro": micro, "once": step - k * micro, "step": step, "simple": scalar(simple), "saved": scalar(saved),
        "tokens_per_second": data["throughput"]["tokens_per_second"], "mfu": data["throughput"]["mfu"],
        "steps": float(law.steps(run["tokens"], start["batch"], law.UP)), "seconds": run["days"] * 86400.0, "usd": run["usd"],
        "why_not": "" if memory["fits"] else "does not fit",
    }, [batch, whole, simple, saved]  # fmt: skip


def _memory_at_once(asked: Mapping[str, Any], held: Mapping[str, Any], k: float, batch: float, folders: tuple[str, ...]) -> float | None:
    """Memory of the same plan with the k micro-batches as one; None where k is 1 or there is no such plan."""
    if k == 1.0:
        return None
    change = {"global_batch_size": batch, "micro_batch_size": held["micro_batch_size"] * k, "vpp": 1.0}
    estimate = _estimate(asked, held, change, folders)
    return None if isinstance(estimate, str) else float(estimate.row(0)["memory"]["device"])


def _fewer_row(asked: Mapping[str, Any], held: Mapping[str, Any], k: float, most: float, folders: tuple[str, ...]) -> dict[str, Any]:
    """The batch of the largest k on as many accelerators as need k micro-batches for it: a k-th of the most."""
    sequences = most * held["micro_batch_size"] * held["dp"]
    gpus = asked["gpus"] * most / k
    start = _start_row(asked, k, gpus, sequences, folders)
    if gpus % 1.0:
        return {**start, "why_not": f"{most:g} micro-batches are no multiple of {k:g}"}
    change = {"gpus": gpus, "global_batch_size": sequences, **dict.fromkeys(SHARDS)}
    estimate = _estimate(asked, held, change, folders)
    if isinstance(estimate, str):
        return {**start, "why_not": estimate}
    data = estimate.row(0)
    run, memory = data["run"], data["memory"]
    return {
        **start, "memory": memory["device"], "fits": memory["fits"], "step": data["step"]["seconds"], "seconds": run["days"] * 86400.0,
        "gpu_seconds": run["gpu_hours"] * 3600.0, "usd": run["usd"], "why_not": "" if memory["fits"] else "does not fit",
    }  # fmt: skip


def _write_headline(rows: Sequence[Mapping[str, Any]], fewer: Sequence[Mapping[str, Any]]) -> list[str]:
    """What accumulation saves and costs: memory, synchronisation, accelerators; not money."""
    answered = [row for row in rows if row.get("step")]
    if not answered:
        return ["no row has a plan", *[row["why_not"] for row in rows[:1]]]
    first, last = answered[0], answered[-1]
    ks, rates = (f"{first[key]:,.0f} to {last[key]:,.0f}" for key in ("accumulate", "tokens_per_second"))
    once, memory = units.show(last["once"], "s", 3), units.show(last["memory"], "B", 4)
    lines = [
        f"k {ks}: {rates} tokens/s, as {once} of a step is paid once; {last['saved']:.1%} of the synchronisations are saved",
        f"memory is that of one micro-batch: {memory}",
    ]
    if last.get("at_once"):
        lines[-1] += f"; the batch of k {last['accumulate']:g} at once would take {units.show(last['at_once'], 'B', 4)}"
    paid = [row for row in fewer if row.get("gpu_seconds")]
    if len(paid) > 1:
        few, many = paid[0], paid[-1]
        more, longer = few["gpu_seconds"] / many["gpu_seconds"] - 1.0, few["seconds"] / many["seconds"]
        saves = "no money" if more >= 0.0 else "little money"
        verdict = f": accumulation saves accelerators and {saves}" if abs(more) < LITTLE else ""
        lines.append(
            f"the same batch on {few['gpus']:,.0f} accelerators with k {few['accumulate']:g} takes {longer:.3g} times as long as on"
            f" {many['gpus']:,.0f} with k {many['accumulate']:g}, and {more:+.1%} GPU time{verdict}"
        )
    return lines
