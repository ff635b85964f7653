"""Compare accelerators for a job: what each needs, reaches, costs and draws, by the plan that ``estimate`` chooses.

Rows are accelerators times frameworks times counts, or the counts that meet a rate, a deadline, a budget or a power limit.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from ironlaw.cautions.record import Caution
from ironlaw.cautions.table import caution
from ironlaw.errors import IronlawError, MissingOptionError, QuestionError
from ironlaw.estimate.bind.batch import objective_of_several
from ironlaw.estimate.bind.model import bind_model
from ironlaw.estimate.layer.counts import active_parameters, total_parameters
from ironlaw.progress import counted
from ironlaw.question import defaults
from ironlaw.question.assumptions import Assumptions, assume
from ironlaw.questions.answer import Answer
from ironlaw.questions.compare.candidates import Candidate, Hardware
from ironlaw.questions.compare.cells import Cell, candidate_of
from ironlaw.questions.compare.headline import default_goal, headline, objective
from ironlaw.questions.compare.limits import Limits
from ironlaw.questions.compare.named import accelerators_of, asked_of, by_full_name, refuse_above_peak, say_model
from ironlaw.questions.compare.options import PASSED
from ironlaw.questions.compare.prices import best_metric, bind_hardware, price_warnings, rank_prices, simple_prices
from ironlaw.questions.compare.tables import fixes, price_table, tables


def ask(values: dict[str, Any], folders: tuple[str, ...] = ()) -> Answer:
    """The answer to options as the command line gives them."""
    on = _check(values, folders)
    model, left_out = bind_model(values["model"], folders)
    assumptions: Assumptions = []
    if "seq_len" not in values:
        values["seq_len"] = defaults.seq_len(model.max_position_embeddings)
        assume(assumptions, "seq_len", values["seq_len"], "default")
    hardware = [bind_hardware(name, values, folders) for name in on]
    refuse_above_peak(hardware, asked_of(values), float(active_parameters(model)))
    candidates = _sorted(list(_candidates(hardware, values, model, folders)), values)
    if candidates and all(candidate.error for candidate in candidates):
        raise candidates[0].error or QuestionError("no accelerator can do the job")
    ranking = rank_prices(hardware, _costs_of(candidates))
    _note(assumptions, [one.assumptions for one in hardware] + [one.assumptions for one in candidates])
    return Answer(
        title=f"{say_model(model)} trained on {', '.join(on)}",
        headline=headline(candidates, values),
        tables=(
            *tables(candidates, values), price_table(hardware), simple_prices(ranking, "estimate"),
            fixes({candidate.trained.bound for candidate in candidates if candidate.trained}),
        ),
        terms=[term for terms in [one.terms for one in hardware] + [one.terms for one in candidates] for term in terms],
        values={
            "metric": best_metric(ranking),
            "metrics": ranking,
            "minimize": default_goal(values),
            "parameters": {"total": float(total_parameters(model)), "active": float(active_parameters(model))},
        },
        assumptions=assumptions,
        warnings=_warnings(hardware, candidates, left_out),
        feasible=any(candidate.answers for candidate in candidates),
        possible=any(candidate.legal for candidate in candidates),
        folders=folders,
    )  # fmt: skip


def _note(assumptions: Assumptions, noted: Sequence[Sequence[dict[str, Any]]]) -> None:
    """Add what the candidates assume, each once; a share of memory to keep that differs between frameworks as one line."""
    margins = list(dict.fromkeys(item["value"] for items in noted for item in items if item["name"] == "margin"))
    shares = " or ".join(str(value).removesuffix(" of device memory") for value in margins)
    for item in (item for items in noted for item in items):
        differs = item["name"] == "margin" and len(margins) > 1
        said = {**item, "value": f"{shares} of device memory, by framework"} if differs else item
        if said not in assumptions and said["name"] != "price":  # a price is noted with its accelerator
            assumptions.append(said)


def _check(values: dict[str, Any], folders: tuple[str, ...]) -> tuple[str, ...]:
    """Refuse options that contradict each other or have no effect; the full names of the accelerators."""
    sizes = ("gpus", "target_tokens_per_second", "deadline", "budget", "power_limit")
    if not any(name in values for name in sizes):
        raise MissingOptionError("missing option --gpus N, or a limit: --target-tokens-per-second, --deadline, --budget or --power-limit")
    on = accelerators_of(values, folders)
    counts, targets = values.get("gpus", ()), values.get("target_tokens_per_second", ())
    if len(counts) > 1 and len(targets) > 1:
        raise QuestionError("give a list of --gpus or a list of --target-tokens-per-second, not both")
    values["price"] = by_full_name(values.get("price", {}), "price", on, folders)
    return on


def _costs_of(candidates: Sequence[Candidate]) -> dict[str, float]:
    """USD per million tokens by accelerator: of several counts the first, of several frameworks the cheapest."""
    cost: dict[str, float] = {}
    for row in candidates:
        if row.place == 0 and row.trained and not math.isnan(row.trained.usd_per_million_tokens):
            cost[row.hardware.name] = min(row.trained.usd_per_million_tokens, cost.get(row.hardware.name, math.inf))
    return cost


def _candidates(hardware: Sequence[Hardware], values: dict[str, Any], model: Any, folders: tuple[str, ...]) -> list[Candidate]:
    """A row for every count or target, accelerator and framework; the best so far is told while they are made."""
    total = len(asked_of(values)) * len(values.get("framework", ("",))) * len(hardware)
    goal, found = default_goal(values), list[Candidate]()
    with counted("accelerators", total) as count:
        for candidate in _each_candidate(hardware, values, model, folders):
            found.append(candidate)
            best = min(found, key=lambda one: objective(one, goal))
            count.tell(len(found), best.label if math.isfinite(objective(best, goal)) else "")
    return found


def _each_candidate(hardware: Sequence[Hardware], values: dict[str, Any], model: Any, folders: tuple[str, ...]) -> Iterator[Candidate]:
    """The rows, each made when it is asked for."""
    asked, frameworks = asked_of(values), values.get("framework", ("",))
    several, total = len(frameworks) > 1, len(asked) * len(frameworks) * len(hardware)
    shared = objective_of_several(frameworks, folders)
    for one in hardware:
        for framework in frameworks:
            cells: dict[Any, Cell] = {}
            for place, (count, target) in enumerate(asked):
                if target not in cells:
                    limits = Limits(target, values.get("deadline"), values.get("budget"), values.get("power_limit"))
                    cells[target] = Cell(
                        one, shared | _options(one, framework, values), values, limits, folders, framework if several else ""
                    )
                label = one.name + (f" ({framework})" if several else "")
                if len(asked) > 1:
                    label = f"{count:,.0f} x {label}" if count is not None else f"{label} at {target:,.0f} tokens/s"
                try:
                    candidate = _evaluate(cells[target], count, label, place, model)
                except IronlawError as error:  # what one accelerator cannot do is a row of a comparison of several
                    if total == 1:
                        raise
                    candidate = Candidate(
                        one, label, place, framework if several else "", target, count=count, error=error, no_count=str(error)
                    )
                yield candidate


def _evaluate(cell: Cell, count: float | None, label: str, place: int, model: Any) -> Candidate:
    """The row of a cell at a count, or at one that meets the limits."""
    gpus = count if count is not None else cell.find_count(model)
    candidate = candidate_of(cell, gpus, label, place, model, cell.limits.target)
    if candidate.trained and cell.values.get("flags", bool(cell.framework)):
        return replace(candidate, flags=_launch_flags(cell, gpus, model))
    return candidate


def _options(hardware: Hardware, framework: str, values: Mapping[str, Any]) -> dict[str, Any]:
    """The options of the estimate of an accelerator and a framework, without the count."""
    options = {name: values[name] for name in ("model", *PASSED) if name in values} | {"on": hardware.name}
    if "tokens" not in values:
        options = {name: value for name, value in options.items() if name != "pue"}  # of the power alone, which a cell computes
    elif hardware.name in values["price"]:
        options["price"] = values["price"][hardware.name]
    return options | ({"framework": framework} if framework else {})


def _launch_flags(cell: Cell, gpus: float | None, model: Any) -> tuple[dict[str, str], ...]:
    """The launch flags of a plan; one row that says so where the framework's flags are not known."""
    from ironlaw.estimate.answer.as_data import layers_by_stage, plan_data
    from ironlaw.estimate.answer.reproduce import asked_data
    from ironlaw.launch.flags import flags_of

    assert gpus is not None
    group = cell.at(gpus).group
    plan = {**asked_data(group, 0)["given"], "fp8_scaling": group.job.fp8_scaling, **plan_data(group, 0)}
    plan["stages"] = layers_by_stage(group.job, group.plan, 0)
    rows = flags_of(plan, model.num_hidden_layers, model.num_nextn_predict_layers)
    return tuple({"framework": plan["framework"], **row} for row in rows)


def _sorted(candidates: list[Candidate], values: dict[str, Any]) -> list[Candidate]:
    """Rows by count or target, then those that answer yes, the best first; equals stay in the order of the question."""
    goal = default_goal(values)
    return sorted(candidates, key=lambda candidate: (candidate.place, not candidate.answers, objective(candidate, goal)))


def _warnings(hardware: Sequence[Hardware], candidates: Sequence[Candidate], left_out: Sequence[str]) -> list[Caution]:
    """What a reader must know: prices first, then what rows share."""
    lines = [caution("left-out", item=item) for item in left_out] + price_warnings(hardware)
    batches = {candidate.planned.batch_tokens for candidate in candidates if candidate.planned}
    if len(batches) > 1:
        lines.append(caution("batches-differ"))
    by_line: dict[Caution, list[Candidate]] = {}
    for candidate in candidates:
        for line in candidate.warnings:
            by_line.setdefault(line, []).append(candidate)
    for line, rows in by_line.items():
        if line not in lines:
            named = len(rows) == len(candidates) or any(row.hardware.name in str(value) for row in rows for value in line.values.values())
            lines.append(line if named else line.within(", ".join(row.label for row in rows)))
    above = [candidate.above for candidate in candidates if candidate.above]
    if above:
        lines.append(caution("above-measured-rows", rows=above))
    return [*lines, *(line for one in hardware for line in one.warnings)]
