"""Document 004's table at a constant MFU (simplified): accelerators for a step of a given time, accumulation and its memory."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from typing import Any

from ironlaw import units
from ironlaw.errors import QuestionError, ValueRangeError
from ironlaw.estimate.bind.cluster import bind_precision, cluster_of
from ironlaw.estimate.bind.money import bind_pue
from ironlaw.estimate.layer.counts import active_parameters
from ironlaw.estimate.run import power_of
from ironlaw.law import activations, cost, energy, flops, run, states
from ironlaw.questions.answer import Answer, Column, Table, need
from ironlaw.questions.solve.job import Job
from ironlaw.questions.sweep.ask import PASSED, exchanges, run_of, shown
from ironlaw.terms import Term, leaf, plain

ROWS = (
    Column("model", "model"), Column("tokens", "run", "token"), Column("seq_len", "sequence", "1"), Column("batch", "batch", "token"),
    Column("steps", "steps", "1"), Column("flop", "FLOP, run", "FLOP"), Column("step_flop", "FLOP, step", "FLOP"),
    Column("gpus", "GPUs", "1"), Column("step", "step", "s"), Column("seconds", "run takes", "s"), Column("usd", "USD", "USD"),
    Column("power", "draws (rated)", "W"), Column("energy", "energy", "J"),
)  # fmt: skip
TURNS = (
    Column("model", "model"), Column("tokens", "run", "token"), Column("seq_len", "sequence", "1"), Column("batch", "batch", "token"),
    Column("accumulate", "in turn", "1"), Column("gpus", "GPUs", "1"), Column("seconds", "run takes", "s"), Column("usd", "USD", "USD"),
    Column("activations", "activations", "B"), Column("memory", "with states", "B"), Column("holding", "GPUs to hold", "1"),
    Column("holds", "enough"),
)  # fmt: skip


def by_hand(values: dict[str, Any], folders: tuple[str, ...]) -> Answer:
    """The rows, and each again with its batch in k parts."""
    if ("gpus" in values) == ("step_time" in values):
        raise QuestionError("--mfu: give either --gpus LIST or --step-time TIME, such as 1s")
    if odd := [name for name in PASSED if name in values and name not in ("precision", "node", "fabric")]:
        raise QuestionError(f"--mfu takes the step as given, so --{odd[0].replace('_', '-')} says nothing: leave one of them out")
    need(values, "global_batch_tokens")
    rows: list[dict[str, Any]] = []
    turns: list[dict[str, Any]] = []
    asked: list[Any] = []  # the model of each row, as it was given
    terms: list[Term] = []
    notes: list[dict[str, Any]] = []
    for which in values.get("model") or values["parameters"]:
        for seq_len in values.get("seq_len", (None,)):
            job = _job(values, which, seq_len, folders)
            for row in _rows(values, job, terms, folders):
                rows.append(row)
                asked.append(which)
                turns += _turns(values, job, row, terms)
            notes += [note for note in job.notes if note["name"] not in {old["name"] for old in notes}]
    low, high = min(rows, key=lambda r: r["usd"]), max(rows, key=lambda r: r["usd"])
    headline = [
        f"{low['usd']:,.0f} USD ({low['model']}, {units.show(low['tokens'], 'token', 4)}) to {high['usd']:,.0f} USD ({high['model']}, "
        f"{units.show(high['tokens'], 'token', 4)}); a batch changes how many accelerators for how long, not the cost",
    ]
    short = sum(not row["holds"] for row in turns)
    if short:
        headline.append(f"{short} of {len(turns)} rows of accumulation have fewer accelerators than hold states and activations")
    warnings = [f"simplified: every row at {values['mfu']:.0%} of the peak, whatever the plan; give --gpus and no --mfu for estimates"]
    tables = [
        Table("rows", f"Runs on {values['on']} at {values['mfu']:.0%} of the peak (simplified)", shown(ROWS, rows), rows),
        Table("accumulated", "Accumulation: 16 bytes a parameter, 34 s b h + 5 a s s b a layer, no recomputation", TURNS, turns),
        *exchanges(values, rows, asked, folders),
    ]
    title = f"A sweep of {len(rows)} runs on {values['on']} (simplified)"
    kept = list({term.name: term for term in terms}.values())
    return Answer(title, headline, tables, kept, {}, notes, warnings, folders=folders)


def _job(values: dict[str, Any], which: Any, seq_len: float | None, folders: tuple[str, ...]) -> Job:
    """The job of a model or of a count of parameters; 6 FLOP for each a token visits, as the document counts."""
    asked: dict[str, Any] = {name: values[name] for name in ("on", "price", "precision") if name in values}
    asked |= {"work": "6n", "parameters" if "parameters" in values else "model": which} | ({"seq_len": seq_len} if seq_len else {})
    job = Job.of(asked, folders)
    if "model" in asked:
        job.flop = leaf("FLOP per token", flops.per_token, "FLOP/token", parameters=float(active_parameters(job.record)))
    return job


def _rows(values: dict[str, Any], job: Job, terms: list[Term], folders: tuple[str, ...]) -> Iterator[dict[str, Any]]:
    """The rows of one model and sequence length."""
    named: dict[str, Any] = {name: values[name] for name in ("on", "node", "fabric") if name in values}
    precision = values.get("precision") or bind_precision(values["on"], folders)
    cluster = cluster_of({**named, "precision": precision}, folders, job.notes)
    pue = bind_pue(values.get("pue"), cluster, job.notes)
    peak, per_token = plain(job.peak), float(job.flop.value)
    for told, batch, gpus in itertools.product(values["tokens"], values["global_batch_tokens"], values.get("gpus", (None,))):
        amount = run_of(told, job.parameters)
        if batch > amount:
            raise ValueRangeError(f"--global-batch-tokens {batch:g} is more than the {amount:g} tokens of the run")
        work = per_token * batch
        count = gpus or float(run.gpus_needed(work, values["step_time"], peak, values["mfu"]))
        step = float(run.iron_law(work, peak * count, values["mfu"]))
        steps = float(run.steps(amount, batch))
        name = f"{job.record.name if 'model' in values else job.title}"
        usd = leaf(f"rent of {name}", cost.rental, "USD", gpus=count, seconds=steps * step, price=job.price)
        power = float(power_of(cluster, count, pue).value)
        terms += [job.flop, usd]
        yield {
            "model": name, "parameters": job.parameters, "tokens": amount, "seq_len": job.seq_len, "batch": batch, "steps": steps,
            "flop": per_token * amount, "step_flop": work, "gpus": count, "step": step, "seconds": steps * step, "usd": float(usd.value),
            "power": power, "energy": float(energy.energy(power, steps * step)),
        }  # fmt: skip


def _turns(values: dict[str, Any], job: Job, row: dict[str, Any], terms: list[Term]) -> Iterator[dict[str, Any]]:
    """The batch in k parts, one after the other, on a k-th of the accelerators: k times as long, a k-th of the activations."""
    for k in values.get("accumulate", (1.0, 5.0, 10.0, 100.0)):
        sequences = row["batch"] / k / job.seq_len
        if sequences < 1.0 and k > 1.0:
            continue  # a sequence is not cut
        gpus = math.ceil(row["gpus"] / k)
        layer = leaf(
            "activations of a layer", activations.korthikanti_layer, "B", batch=max(sequences, 1.0), seq_len=job.seq_len,
            hidden_size=float(job.record.hidden_size), num_attention_heads=float(job.record.num_attention_heads), tp=1.0, sp=0.0,
        )  # fmt: skip
        held = leaf("static memory", states.training_static, "B", parameters=job.parameters)
        terms += [layer, held]
        kept = float(layer.value) * job.record.num_hidden_layers
        holding = math.ceil((kept + float(held.value)) / job.capacity)
        yield {
            **{name: row[name] for name in ("model", "tokens", "seq_len", "batch", "usd")}, "accumulate": k, "gpus": gpus,
            "seconds": row["seconds"] * row["gpus"] / gpus, "activations": kept, "memory": kept + float(held.value),
            "holding": holding, "holds": gpus >= holding,
        }  # fmt: skip
