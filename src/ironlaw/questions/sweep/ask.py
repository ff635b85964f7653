"""Sweep batch sizes, sequence lengths, models, tokens and counts: every combination of the given lists is a row, an estimate."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Any

from ironlaw import units
from ironlaw.cautions.record import Sentence
from ironlaw.errors import IronlawError, QuestionError, UnitError, UnknownNameError
from ironlaw.estimate.answer.estimate import Estimate, answer
from ironlaw.estimate.bind.model import bind_model, count_tokens, plain_model
from ironlaw.estimate.bind.question import batch_taken, sequences_of
from ironlaw.estimate.layer.counts import total_parameters
from ironlaw.estimate.what_if.near_counts import describe_counts, nearest_counts, why_impossible
from ironlaw.estimate.what_if.offers import describe_offers, offers
from ironlaw.law import run as law
from ironlaw.progress import steps
from ironlaw.question import defaults
from ironlaw.question.assumptions import Assumptions, assume
from ironlaw.question.words import PerParameter
from ironlaw.questions.answer import Answer, Column, Table, filled_columns
from ironlaw.questions.sweep.accumulation import sweep_accumulation
from ironlaw.questions.sweep.exchanges import check_sizes, count_sites, tabulate_exchanges
from ironlaw.questions.sweep.options import PASSED

ROWS = (
    Column("model", "model"), Column("tokens", "run", "token"), Column("seq_len", "sequence", "1"), Column("batch", "batch", "token"),
    Column("gpus", "GPUs", "1"), Column("power_cap", "power cap", "W"), Column("capacity_factor", "capacity factor", "1"),
    Column("dropped_share", "rows dropped", "%"), Column("accumulated", "micro-batches", "1"), Column("memory", "memory", "B"),
    Column("at_once", "without accumulation", "B"), Column("fits", "fits"), Column("step", "step", "s"),
    Column("tokens_per_second", "tokens/s", "1"),
    Column("mfu", "MFU", "%"), Column("steps", "steps", "1"), Column("seconds", "run takes", "s"), Column("usd", "USD", "USD"),
    Column("energy", "energy", "J"), Column("tokens_per_joule", "tokens/J", "token/J"), Column("why_not", ""),
)  # fmt: skip
MESH = ("tp", "pp", "cp", "ep", "dp_replicate", "dp_shard", "zero", "global_batch_size", "seq_len")


def ask(values: dict[str, Any], folders: tuple[str, ...] = ()) -> Answer:
    """The answer to options as the command line gives them."""
    check_sizes(values)
    if "accumulate" in values:
        return sweep_accumulation(values, folders)
    answer = _sweep_estimates(values, folders)
    if "sites" not in values:
        return answer
    return replace(answer, tables=[*answer.tables, tabulate_exchanges(values, answer["rows"], partial(_asked_of_sites, values), folders)])


def _asked_of_sites(values: Mapping[str, Any], row: Mapping[str, Any], model: Any) -> dict[str, Any]:
    """The options of a row at several sites: the estimate of each site needs a count that they share evenly."""
    count = count_sites(values)
    return {"model": model, "seq_len": row["seq_len"], "gpus": float(math.ceil((row["gpus"] or 1.0) / count) * count)}


def _sweep_estimates(values: dict[str, Any], folders: tuple[str, ...]) -> Answer:
    """Every row by an estimate with the plan it chooses."""
    rounding = values.get("rounding", defaults.ROUNDING)
    batches = "global_batch_size" if "global_batch_size" in values else "global_batch_tokens"
    lists = [values.get(name, (None,)) for name in ("model", "tokens", "seq_len", batches, "gpus", "power_cap", "capacity_factor")]
    common = {name: values[name] for name in ("on", *PASSED, "price", "pue") if name in values}
    estimates = [
        _estimate_row(
            {**common, "model": model, "gpus": gpus}
            | {
                name: value
                for name, value in (("seq_len", seq_len), (batches, batch), ("power_cap", cap), ("capacity_factor", capacity))
                if value
            },
            run,
            rounding,
            folders,
        )
        for model, run, seq_len, batch, gpus, cap, capacity in steps(list(itertools.product(*lists)), "runs")
    ]
    rows = [row for row, *_ in estimates]
    errors = [error for *_, error in estimates if error is not None and error.option]
    if rows and len(errors) == len(rows):  # an option that is wrong for every row
        raise errors[0]
    assumptions: Assumptions = []
    for taken in dict.fromkeys(batch_taken(batch, row["seq_len"]) for row in rows for batch in values.get("global_batch_tokens", ())):
        if taken:
            assume(assumptions, "--global-batch-tokens", taken, "default")
    if "rounding" not in values:
        assume(assumptions, "rounding of steps", rounding, "default")
    warnings = [line for _, estimate, _ in estimates if estimate for line in estimate.groups[0].warnings]
    fitting = [(row, estimate) for row, estimate, _ in estimates if estimate and row["fits"]]
    headline, terms = [Sentence("no row has a plan that fits", "none")], []
    if fitting:
        row, estimate = max(fitting, key=lambda pair: pair[0]["tokens_per_second"])
        frugal = max((pair[0] for pair in fitting), key=lambda each: each["tokens_per_joule"] or 0.0)
        group = estimate.groups[0]
        best = (
            f"most tokens per second of the rows that fit: {row['tokens_per_second']:,.0f}, {row['model']}, batch of "
            f"{units.show(row['batch'], 'token', 4)}, sequences of {row['seq_len']:,.0f}, {row['gpus']:,.0f} accelerators"
            + (f" at {row['power_cap']:g} W" if row["power_cap"] else "")
        )
        headline = [
            Sentence(best, "fastest", {name: row[name] for name in FASTEST}),
            *([_describe_frugal(frugal, row)] if frugal["tokens_per_joule"] else []),
            Sentence("accumulation saves memory: the next column is the same plan without accumulation", "accumulation"),
        ]
        terms = [group.throughput["tokens_per_second"], group.memory.tree, group.step.tree]
        listed = {item["name"] for item in assumptions} | {"seq_len", "global_batch_size"}
        assumptions += [item for item in group.assumptions if item["name"] not in listed]
    else:
        headline += [Sentence(row["why_not"], "why-not") for row in rows[:1] if row["why_not"]]
    tables = [Table("rows", f"Runs on {values['on']}, each by estimate", filled_columns(ROWS, rows), rows)]
    title = f"{len(rows):,} run{'s' if len(rows) != 1 else ''} on {values['on']}"
    possible = any(row.get("legal", True) for row in rows)
    return Answer(title, headline, tables, terms, {}, assumptions, warnings, bool(fitting), folders, possible)


FASTEST = ("tokens_per_second", "model", "batch", "seq_len", "gpus", "power_cap")  # what the headline tells of the fastest row


def _describe_frugal(row: Mapping[str, Any], fastest: Mapping[str, Any]) -> Sentence:
    """The row with the most tokens for each joule, beside the fastest."""
    saved, slower = 1.0 - fastest["tokens_per_joule"] / row["tokens_per_joule"], fastest["tokens_per_second"] / row["tokens_per_second"]
    than = f": {saved:.1%} less energy for a token than the fastest row, {slower:.2f} times its time" if row is not fastest else ""
    words = f"most tokens per joule: at {row['power_cap']:g} W, {row['tokens_per_joule']:.3g} tokens/J{than}"
    return Sentence(words, "frugal", {name: row[name] for name in ("power_cap", "tokens_per_joule")})


def _estimate_row(
    given: Mapping[str, Any], run: float | PerParameter, rounding: str, folders: tuple[str, ...]
) -> tuple[dict[str, Any], Estimate | None, QuestionError | None]:
    """One row and its estimate; a row without a plan says why, with the error where there is no estimate. ``rounding`` of its steps."""
    asked, row = _begin_row(given, run, folders)
    try:
        estimate = answer({**asked, "tokens": row["tokens"]}, folders)
    except (UnknownNameError, UnitError):
        raise  # the option is wrong for every row
    except QuestionError as error:
        return {**row, "why_not": str(error), "legal": False}, None, error
    data = estimate.row(0)
    if data["step"]["seconds"] is None:
        return {**row, "why_not": f"no such plan: {why_impossible(estimate)}", "legal": False}, None, None
    fits = data["memory"]["fits"]
    why_not = "" if fits else f"does not fit{describe_offers(offers(estimate))}{describe_counts(nearest_counts(estimate))}"
    at_once = _memory_without_accumulation(asked, data["plan"], folders)
    return {**row, **_row_of_estimate(data, row, rounding), "at_once": at_once, "why_not": why_not}, estimate, None


def _begin_row(given: Mapping[str, Any], run: float | PerParameter, folders: tuple[str, ...]) -> tuple[dict[str, Any], dict[str, Any]]:
    """The options of a row's estimate, and what the row says of its question."""
    model = plain_model(bind_model(given["model"], folders)[0])
    asked = {"seq_len": defaults.seq_len(model.max_position_embeddings), **given}
    if "global_batch_tokens" in asked:
        asked["global_batch_size"] = sequences_of(asked.pop("global_batch_tokens"), asked["seq_len"])
    return asked, {
        "model": model.name,
        "tokens": count_tokens(run, float(total_parameters(model))),
        "seq_len": asked["seq_len"],
        "batch": asked["global_batch_size"] * asked["seq_len"] if "global_batch_size" in asked else None,
        "gpus": asked["gpus"],
        "power_cap": asked.get("power_cap"),
        "capacity_factor": asked.get("capacity_factor"),
        "dropped_share": None,
        "fits": None,
    }


def _row_of_estimate(data: Mapping[str, Any], row: Mapping[str, Any], rounding: str) -> dict[str, Any]:
    """What a row says of its estimate; the run is the estimate's, whose last step is whole, in as many steps as ``rounding`` says."""
    plan, run = data["plan"], data["run"]
    documents = data.get("documents")
    of_sequence = documents["real_tokens_per_sequence"] if documents else plan["seq_len"]  # padding is no token of the run
    tokens_per_step = plan["global_batch_size"] * of_sequence
    steps, whole = (float(law.steps(run["tokens"], tokens_per_step, how)) for how in (law.ROUNDINGS[rounding], law.UP))
    part = steps / whole
    joules = None if run["kwh"] is None else run["kwh"] * 3.6e6 * part
    return {
        "batch": tokens_per_step,
        "dropped_share": data.get("routing", {}).get("dropped_share"),
        "accumulated": plan["num_microbatches"],
        "memory": data["memory"]["device"],
        "at_once": None,
        "fits": data["memory"]["fits"],
        "step": data["step"]["seconds"],
        "tokens_per_second": data["throughput"]["tokens_per_second"],
        "mfu": data["throughput"]["mfu"],
        "steps": steps,
        "seconds": run["days"] * 86400.0 * part,
        "usd": None if run["usd"] is None else run["usd"] * part,
        "energy": joules,
        "tokens_per_joule": None if joules is None or row["power_cap"] is None else row["tokens"] / joules,
    }


def _memory_without_accumulation(asked: Mapping[str, Any], plan: Mapping[str, Any], folders: tuple[str, ...]) -> float | None:
    """Memory of the same plan with a rank's whole batch as one micro-batch; None if it already is one, or if there is no such plan."""
    if plan["num_microbatches"] == 1:
        return None
    whole_batch = plan["global_batch_size"] / plan["dp"]
    one_batch = {**asked, **{name: float(plan[name]) for name in MESH}, "sp": plan["sp"], "vpp": 1.0, "micro_batch_size": whole_batch}
    one_batch |= {"recompute": plan["recompute"], "framework": plan["framework"]}
    try:
        data = answer(one_batch, folders).row(0)
    except IronlawError:
        return None
    return None if data["step"]["seconds"] is None else float(data["memory"]["device"])
