"""Recipes of precisions side by side: bits, memory, casts, step, what binds, and what is known of the loss."""

from __future__ import annotations

from typing import Any

import numpy as np

from ironlaw import units
from ironlaw.catalog import load
from ironlaw.catalog.abilities import has
from ironlaw.cautions.record import Sentence
from ironlaw.errors import QuestionError, UnsupportedError
from ironlaw.estimate.answer.as_data import bound_data
from ironlaw.estimate.answer.estimate import answer
from ironlaw.estimate.answer.group import Group
from ironlaw.estimate.answer.reproduce import asked_data
from ironlaw.estimate.bind.cluster import bind_precision, can_run, find_precision
from ironlaw.estimate.layer.casts import CAST
from ironlaw.estimate.layer.kinds import kinds
from ironlaw.estimate.layer.sizes import operator_of
from ironlaw.estimate.what_if.near_counts import no_such_plan
from ironlaw.precision import Precision
from ironlaw.question.read import read_options
from ironlaw.questions.answer import Answer, Column, Table, filled_columns
from ironlaw.terms import Term, scalar

RECIPE_COLUMNS = (
    Column("precision", "precision"), Column("products", "output, data gradient, weight gradient"),
    Column("input_bits", "bits of an input", "1"), Column("weight_bits", "of a weight", "1"),
    Column("input_bytes_moved", "bytes moved to cast an input", "1"), Column("hadamard", "Hadamard transform", "1"),
    Column("random_bits", "random bits of a value", "1"), Column("devices", "accelerators"),
)  # fmt: skip
STEP_COLUMNS = (
    Column("precision", "precision"), Column("seconds", "step", "s"), Column("ratio", "of the first", "1"), Column("mfu", "MFU", "%"),
    Column("peak", "of dense", "FLOP/s"), Column("bound", "bound by"), Column("casts", "casts", "%"),
    Column("device", "device memory", "B"), Column("copies", "cast copies of weights", "B"), Column("activations", "activations", "B"),
    Column("wide_layers", "wide layers", "1"), Column("fits", "fits"),
)  # fmt: skip
EXACT_COLUMNS = (Column("precision", "precision"), Column("exactness", "training loss beside bf16"))


def table(values: dict[str, Any], folders: tuple[str, ...]) -> Answer:
    """The recipes; with MODEL, --on and --gpus also one plan of the model in each that the accelerator can multiply."""
    timed = "model" in values
    if timed and not {"on", "gpus"} <= values.keys():
        raise QuestionError("textbook precisions with MODEL needs --on and --gpus")
    named = values.pop("precisions", None)
    if "precision" in values:
        raise QuestionError("textbook precisions: give a list with --precisions instead of --precision")
    known = named or load.names("precisions", folders)
    recipes = [find_precision("precisions", name, folders) for name in known]
    if "on" in values:
        recipes = _usable(recipes, values["on"], named is not None, folders)
    if "framework" in values and named is None:
        recipes = [recipe for recipe in recipes if _stack_has(values["framework"], recipe, folders)]
    tables = [Table("recipes", "Recipes", RECIPE_COLUMNS, [_recipe_row(recipe, folders) for recipe in recipes])]
    text = f"{len(recipes)} recipes; ironlaw catalog show NAME prints one with its sources"
    headline = [Sentence(text, "count", {"recipes": len(recipes)})]
    group: Group | None = None
    if timed:
        held = _with_framework(values, recipes, folders)
        group, rows = _step_rows(held, recipes, folders)
        fastest, least = min(rows, key=lambda row: row["seconds"]), min(rows, key=lambda row: row["device"])
        quick = (
            f"fastest: {fastest['precision']}, step {units.show(fastest['seconds'], 's')},"
            f" {fastest['ratio']:.2f} of that in {rows[0]['precision']}; bound by {fastest['bound']}"
        )
        small = f"least memory: {least['precision']}, {units.show(least['device'], 'B')} of each accelerator"
        headline = [
            Sentence(quick, "fastest", {name: fastest[name] for name in ("precision", "seconds", "ratio", "bound")}),
            Sentence(small, "least-memory", {"precision": least["precision"], "bytes": least["device"]}),
            Sentence("the same plan in every precision: the one that is best in the first, or the one given", "plan"),
        ]
        if held is not values:
            text = f"in the framework {held['framework']}, which has every recipe: no framework is named"
            headline.append(Sentence(text, "framework", {"framework": held["framework"]}))
        tables.insert(0, Table("steps", "One plan in each precision", filled_columns(STEP_COLUMNS, rows), rows))
    exact = [{"precision": recipe.name, "exactness": load.record("precisions", recipe.name, folders).exactness} for recipe in recipes]
    tables.append(Table("exactness", "Exactness", EXACT_COLUMNS, exact))
    return Answer(
        title="Precisions" if group is None else f"Precisions of {group.job.model.title} on {group.cluster.accelerator.title}",
        headline=headline,
        tables=tuple(tables),
        terms=[] if group is None else [group.step.tree],
        assumptions=[] if group is None else group.assumptions,
        folders=folders,
    )


def _usable(recipes: list[Precision], on: str, named: bool, folders: tuple[str, ...]) -> list[Precision]:
    """The recipes that an accelerator can multiply, its usual precision first; a named one that it cannot is refused by the estimate."""
    device = load.record("accelerators", on, folders)
    calibration = load.record("calibration", device.calibration, folders)
    if named:
        return recipes
    usual = bind_precision(on, folders)
    usable = [recipe for recipe in recipes if can_run(recipe, device, calibration) and recipe.name not in ("fp32", "tf32", "fp16")]
    if not usable:
        raise UnsupportedError(f"--on {on}: its record has no rate of any narrow format or of bf16; give --precisions")
    return sorted(usable, key=lambda recipe: (recipe.name != usual, -recipe.operand_bytes))


def _stack_has(framework: str, recipe: Precision, folders: tuple[str, ...]) -> bool:
    """True where a stack trains in a recipe, or where that is not known."""
    can = load.record("frameworks", load.resolve("frameworks", framework, folders), folders).can
    return can is None or has(can.precisions, recipe.name)


def _with_framework(values: dict[str, Any], recipes: list[Precision], folders: tuple[str, ...]) -> dict[str, Any]:
    """The question with one framework for every recipe: that of the first, or the one without limits where that lacks another."""
    if "framework" in values:
        return values
    usual = answer({**values, "precision": recipes[0].name}, folders).groups[0].job.framework.name
    if all(_stack_has(usual, recipe, folders) for recipe in recipes):
        return values
    return {**values, "framework": load.record("choices", "framework", folders).otherwise}


def _recipe_row(recipe: Precision, folders: tuple[str, ...]) -> dict[str, Any]:
    """What one recipe stores and casts, without a model."""
    record = load.record("precisions", recipe.name, folders)
    parts = [record.forward, record.data_gradient or record.forward, record.weight_gradient or record.forward]
    names = [load.record("accelerators", name, folders) for name in load.names("accelerators", folders)]
    able = [d for d in names if can_run(recipe, d, load.record("calibration", d.calibration, folders))]
    uses = recipe.uses("input")
    reads = 1.0 + (0.0 if recipe.scaling == "delayed" else recipe.scale_reads) + (recipe.hadamard_reads if uses > 1.0 else 0.0)
    return {
        "precision": recipe.name,
        "products": ", ".join(dict.fromkeys(p.operands for p in parts)),
        "input_bits": 8.0 * (recipe.operand_bytes if uses else recipe.activation_bytes),
        "weight_bits": 8.0 * (recipe.weight_bytes or recipe.parameter_bytes),
        "input_bytes_moved": recipe.activation_bytes * reads + recipe.operand_bytes * uses if uses else 0.0,
        "hadamard": recipe.hadamard or None,
        "random_bits": None if record.random_bits is None or not record.random_bits.value else record.random_bits.value,
        "devices": f"{len(able)} of {len(names)}",
    }


def _step_rows(values: dict[str, Any], recipes: list[Precision], folders: tuple[str, ...]) -> tuple[Group, list[dict[str, Any]]]:
    """One plan in every precision."""
    first = answer({**values, "precision": recipes[0].name}, folders)
    if first.rows > 1:
        raise QuestionError("textbook precisions takes one plan: give one value for every option")
    group, at = first.place_of(0)
    if not group.legal[at]:
        raise no_such_plan(first)
    asked = asked_data(group, 0)
    held = read_options({**asked["given"], **asked["plan"]})
    held.pop("global_batch_tokens", None)
    held["global_batch_size"] = scalar(group.plan.global_batch_size)
    rows: list[dict[str, Any]] = []
    for recipe in recipes:
        of_recipe = {name: value for name, value in held.items() if name not in ("fp8_scaling", "fp8_param_gather") or recipe.narrow}
        found = answer({**of_recipe, "precision": recipe.name}, folders).groups[0]
        rows.append(_step_row(found, recipe.name))
    for row in rows:
        row["ratio"] = row["seconds"] / rows[0]["seconds"]
    return group, rows


def _step_row(group: Group, name: str) -> dict[str, Any]:
    """Step, memory and casts of the plan in one precision."""
    memory, step = group.memory.tree, group.step.tree
    named = {term.name: term for term in memory.walk()}
    copies = named.get("low-precision copies of weights")
    return {
        "precision": name,
        "seconds": scalar(step),
        "mfu": scalar(group.throughput["mfu"]),
        "peak": group.cluster.accelerator.peak[group.job.precision.peak].value,
        "bound": bound_data(group, 0, illegal=False)["by"],
        "casts": cast_seconds(step) / scalar(step),
        "device": scalar(group.memory.device),
        "copies": 0.0 if copies is None else scalar(copies),
        "activations": sum(scalar(term) for term in memory.walk() if term.name.startswith("saved ")),
        "wide_layers": sum(kind.count for kind in kinds(group.job.model) if kind.wide) or None,
        "fits": bool(group.memory.fits[0]),
    }


def cast_seconds(step: Term) -> float:
    """Seconds of a step in kernels that cast, each as often as it runs."""

    def inside(term: Term, factor: Any) -> Any:
        if operator_of(term).name == CAST.name:
            return factor * term.value * term.times
        total: Any = 0.0
        for part in term.parts:
            total = total + inside(part, factor * term.times)
        return total

    return float(np.ravel(inside(step, 1.0))[0])
