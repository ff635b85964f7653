"""Compare accelerators for a job: what each needs, reaches, costs and draws, by the plan that ``estimate`` chooses.

Rows are accelerators times frameworks times counts, or the counts that meet a rate, a deadline, a budget or a power limit. The
three-roof model of ``textbook.three_roof`` answers beside the estimate where it is asked for.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from ironlaw import units
from ironlaw.catalog import load
from ironlaw.cautions.record import Caution
from ironlaw.cautions.table import caution
from ironlaw.errors import IronlawError, MissingOptionError, NoEffectError, QuestionError, UnknownNameError, ValueRangeError
from ironlaw.estimate.bind.batch import objective_of_several
from ironlaw.estimate.bind.model import bind_model
from ironlaw.estimate.layer.counts import active_parameters, total_parameters
from ironlaw.progress import counted
from ironlaw.question import defaults
from ironlaw.question.assumptions import Assumptions, assume
from ironlaw.question.options import flag
from ironlaw.questions.answer import Answer
from ironlaw.questions.compare import first_order, three_roof_words
from ironlaw.questions.compare.candidates import Candidate, Hardware, Textbook
from ironlaw.questions.compare.cells import Cell, candidate_of
from ironlaw.questions.compare.headline import default_goal, headline, objective
from ironlaw.questions.compare.limits import Limits
from ironlaw.questions.compare.options import PASSED, THREE_ROOF
from ironlaw.questions.compare.prices import bind_hardware, price_warnings
from ironlaw.questions.compare.tables import fixes, price_table, tables
from ironlaw.questions.textbook.three_roof import Knobs
from ironlaw.terms import Term


def ask(values: dict[str, Any], folders: tuple[str, ...] = ()) -> Answer:
    """The answer to options as the command line gives them."""
    on = _check(values, folders)
    training = values.get("task", "training") == "training"
    model, left_out = bind_model(values["model"], folders)
    assumptions: Assumptions = []
    if "seq_len" not in values:
        values["seq_len"] = defaults.seq_len(model.max_position_embeddings)
        assume(assumptions, "seq_len", values["seq_len"], "default")
    hardware = [bind_hardware(name, values, folders) for name in on]
    knobs = first_order.knobs_of(values, model, folders)
    _refuse_above_peak(hardware, values, knobs)
    books = _read_textbook(hardware, values, knobs)
    candidates = _sorted(list(_candidates(hardware, values, model, folders)) if training else [], values)
    if candidates and all(candidate.error for candidate in candidates):
        raise candidates[0].error or QuestionError("no accelerator can do the job")
    by, cost = three_roof_words.costs_of(candidates, books, values)
    ranking = three_roof_words.rank_prices(hardware, cost)
    _note(assumptions, [one.assumptions for one in hardware] + [one.assumptions for one in candidates])
    return Answer(
        title=f"{_say_model(model)} {'trained' if training else 'run forward'} on {', '.join(on)}",
        headline=[*headline(candidates, values), *three_roof_words.say_three_roofs(hardware, books, cost, knobs, values)],
        tables=(
            *tables(candidates, values), *three_roof_words.tables(books, knobs, values), price_table(hardware),
            three_roof_words.simple_prices(ranking, by), fixes(candidates, books),
        ),
        terms=_terms(hardware, candidates, books, knobs, values),
        values={
            "metric": three_roof_words.best_metric(ranking),
            "metrics": ranking,
            "rule_pick": three_roof_words.rule_pick(books),
            "three_roof_model": values["three_roof"],
            "minimize": default_goal(values),
            "parameters": {"total": float(total_parameters(model)), "active": float(active_parameters(model))},
        },
        assumptions=assumptions,
        warnings=_warnings(hardware, candidates, books, left_out, training),
        feasible=any(candidate.answers for candidate in candidates) if training else True,
        possible=any(candidate.legal for candidate in candidates) if training else True,
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
    training = values.get("task", "training") == "training"
    sizes = ("gpus", "target_tokens_per_second", "deadline", "budget", "power_limit")
    if training and not any(name in values for name in sizes):
        raise MissingOptionError("missing option --gpus N, or a limit: --target-tokens-per-second, --deadline, --budget or --power-limit")
    on = tuple(load.resolve("accelerators", name, folders) for name in values["on"])
    if len(set(on)) < len(on):
        raise QuestionError(f"--on names an accelerator twice: {', '.join(on)}")
    if "node" in values and len(on) > 1:
        raise QuestionError("--node is of one accelerator, --on names several: compare them one by one, or leave it out")
    if not training and len(values.get("framework", ())) > 1:
        raise QuestionError("--task inference estimates no training: give no --framework")
    counts, targets = values.get("gpus", ()), values.get("target_tokens_per_second", ())
    if len(counts) > 1 and len(targets) > 1:
        raise QuestionError("give a list of --gpus or a list of --target-tokens-per-second, not both")
    first_only = [name for name in THREE_ROOF if name in values and name != "three_roof"]
    if values.get("three_roof") == "off" and first_only:
        raise NoEffectError(f"{flag(first_only[0])} has no effect with --three-roof off: leave one out")
    values.setdefault("three_roof", "corrected" if first_only else "off")
    for name in ("price", "peak", "bandwidth", "nic"):
        values[name] = _by_full_name(values.get(name, {}), name, on, folders)
    return on


def _refuse_above_peak(hardware: Sequence[Hardware], values: dict[str, Any], knobs: Knobs) -> None:
    """Refuse a question in which every rate is above the peak of every accelerator."""
    rows = [(count, target, one) for count, target in _asked(values) for one in hardware]
    why = [first_order.above_peak(count, target, knobs, one.device, one.dense_peak) for count, target, one in rows]
    if all(why):
        raise ValueRangeError(why[0])


def _by_full_name(given: dict[str, Any], option: str, on: tuple[str, ...], folders: tuple[str, ...]) -> dict[str, Any]:
    """Values by the accelerators' full names; a value without a name applies to all."""
    values: dict[str, Any] = {}
    for name, value in given.items():
        full = load.resolve("accelerators", name, folders) if name else ""
        if full and full not in on:
            raise UnknownNameError(f"accelerator of --{option}", name, on)
        values |= {full: value} if full else dict.fromkeys(on, value)
    return values


def _say_model(model: Any) -> str:
    """The model with its parameters."""
    total, active = float(total_parameters(model)), float(active_parameters(model))
    routed = f", {units.show(active, 'parameter').removesuffix(' parameters')} active" if active != total else ""
    return f"{model.title} ({units.show(total, 'parameter')}{routed})"


def _asked(values: Mapping[str, Any]) -> list[tuple[float | None, float | None]]:
    """Counts and targets, one of which may be a list: a row of every accelerator and framework for each."""
    counts, targets = values.get("gpus", (None,)), values.get("target_tokens_per_second", (None,))
    return [(count, target) for count in counts for target in targets]


def _candidates(hardware: Sequence[Hardware], values: dict[str, Any], model: Any, folders: tuple[str, ...]) -> list[Candidate]:
    """A row for every count or target, accelerator and framework; the best so far is told while they are made."""
    total = len(_asked(values)) * len(values.get("framework", ("",))) * len(hardware)
    goal, found = default_goal(values), list[Candidate]()
    with counted("accelerators", total) as count:
        for candidate in _each_candidate(hardware, values, model, folders):
            found.append(candidate)
            best = min(found, key=lambda one: objective(one, goal))
            count.tell(len(found), best.label if math.isfinite(objective(best, goal)) else "")
    return found


def _each_candidate(hardware: Sequence[Hardware], values: dict[str, Any], model: Any, folders: tuple[str, ...]) -> Iterator[Candidate]:
    """The rows, each made when it is asked for."""
    asked, frameworks = _asked(values), values.get("framework", ("",))
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
    from ironlaw.estimate.again import asked_data
    from ironlaw.estimate.as_data import layers_by_stage, plan_data
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


def _read_textbook(hardware: Sequence[Hardware], values: dict[str, Any], knobs: Knobs) -> list[Textbook]:
    """The three-roof model of every accelerator at every count or target, the lowest rent first; nothing where it is off."""
    if values["three_roof"] == "off":
        return []
    books = []
    for gpus, target in _asked(values):
        for one in hardware:
            label = one.name if len(_asked(values)) == 1 else f"{one.name} at {gpus or target or 0:,.0f}"
            device = replace(one.device, name=label)
            own = {**values, "gpus": gpus, "target_tokens_per_second": target}
            first_order.check_replica(own, knobs, device)
            numbers, real, terms, lines = first_order.answer_first_order(own, knobs, device, one.price, one.dense_peak)
            books.append(Textbook(one, label, numbers, real, tuple(terms), tuple(lines)))
    return sorted(books, key=lambda book: book.first_order.usd_per_hour if math.isfinite(book.first_order.usd_per_hour) else math.inf)


def _terms(
    hardware: Sequence[Hardware], candidates: Sequence[Candidate], books: Sequence[Textbook], knobs: Knobs, values: dict[str, Any]
) -> list[Term]:
    """The Terms of every number."""
    intensities = first_order.intensities(knobs, values) if books else []
    found = [one.terms for one in hardware] + [book.terms for book in books] + [one.terms for one in candidates]
    return [*intensities, *(term for terms in found for term in terms)]


def _warnings(
    hardware: Sequence[Hardware], candidates: Sequence[Candidate], books: Sequence[Textbook], left_out: Sequence[str], training: bool
) -> list[Caution]:
    """What a reader must know: prices first, then what rows share, then what the three-roof model leaves out."""
    lines = [caution("left-out", item=item) for item in left_out]
    if training:
        lines += price_warnings(hardware)
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
    own = [one.warnings for one in hardware] + [book.warnings for book in books]
    lines += [line for part in own for line in part]
    return [*lines, *(three_roof_words.warnings(books) if training else [])]
