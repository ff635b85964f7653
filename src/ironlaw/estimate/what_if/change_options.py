"""Hold the plan of an answer and change one option of it; and what the tool chooses when it may choose again."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from ironlaw.errors import IronlawError
from ironlaw.estimate.answer.bands import gain_slope, likely_ratio
from ironlaw.estimate.answer.estimate import Estimate, answer
from ironlaw.estimate.answer.group import Group
from ironlaw.estimate.answer.reproduce import as_option, asked_data
from ironlaw.estimate.answer.saved import Saved, read_answer
from ironlaw.estimate.answer.term_data import number
from ironlaw.estimate.bind.batch import fine_tuned_each
from ironlaw.estimate.legality.rules import broken
from ironlaw.question import defaults
from ironlaw.question.asked import asked_of
from ironlaw.question.options import OPTIONS
from ironlaw.question.read import read_options

_SAME = 1e-9  # of a value: a smaller difference is rounding
_LAYERS = ("layers_per_stage", "first_stage_layers", "last_stage_layers")
_BATCH = ("global_batch_size", "global_batch_tokens")
_ONE_OF = tuple((name, other) for name, option in OPTIONS.items() for other in option.excludes)  # options that exclude each other

Change = tuple[Any, Any]  # before and after; None: left to its default


class Held(NamedTuple):
    """An answer asked again with its plan held and some options changed, and with the plan chosen anew."""

    saved: Saved
    before: Estimate  # the answer, as the tool of today gives it
    after: Estimate  # its plan, with the changes
    anew: Estimate | None  # the plan that the tool chooses; None where it has no answer
    why_not: str  # why it has none
    changed: Mapping[str, Change]  # options that were asked to change
    followed: Mapping[str, Change]  # options that had to change with them


def hold(path: str | Path, changes: Mapping[str, Any], folders: tuple[str, ...] = ()) -> Held:
    """The plan of the answer in a file with ``changes``, which are options of an estimate: ``hold("a.json", {"recompute": "full"})``."""
    saved, read = read_answer(path), read_options(changes)
    options, followed = change_plan(saved, read, folders)
    asked = _replace(saved.given, read)
    anew, why_not = _choose(asked, folders)
    changed = {name: (saved.value(name), value) for name, value in read.items() if saved.value(name) != value}
    after = _with_origin(answer(options, folders), asked)
    return Held(saved, answer(saved.held, folders), after, anew, why_not, changed, followed)


def _choose(asked: Mapping[str, Any], folders: tuple[str, ...]) -> tuple[Estimate | None, str]:
    """The answer with the plan that the tool chooses; None, and why, where it has no plan."""
    try:
        estimate = answer(asked, folders)
    except IronlawError as error:
        return None, str(error)
    group, at = estimate.place_of(0)
    if not group.legal[at]:
        return None, "; ".join(broken(group.job, group.plan, group.rules, at))
    return estimate, ""


def _with_origin(estimate: Estimate, given: Mapping[str, Any]) -> Estimate:
    """Give the origin ``held`` to the options of an estimate that the user did not give but the held plan sets."""

    def marked(group: Group) -> Group:
        assert group.asked is not None
        held = [item["origin"] == "given" and item["name"] not in given for item in group.assumptions]
        notes = [{**item, "origin": "held"} if only else item for item, only in zip(group.assumptions, held, strict=True)]
        asked = group.asked.replace(given={name: value for name, value in group.asked.given.items() if name in given})
        return group.replace(assumptions=notes, asked=asked)

    return estimate.replace(groups=tuple(marked(group) for group in estimate.groups))


def change_plan(saved: Saved, changes: Mapping[str, Any], folders: tuple[str, ...] = ()) -> tuple[dict[str, Any], dict[str, Change]]:
    """The options of the plan of an answer in a file with ``changes``, and the options that follow from them."""
    return change_options(saved.held, saved.given, changes, folders)


def change_options(
    before: Mapping[str, Any], given: Mapping[str, Any], changes: Mapping[str, Any], folders: tuple[str, ...] = ()
) -> tuple[dict[str, Any], dict[str, Change]]:
    """The options of a held plan with ``changes``, and the options that follow from them; ``given`` are those that the user gave.

    The data-parallel size is what the count leaves to it, sequence parallelism goes with tp, and layers placed on stages go with pp.
    With another sequence length the batch keeps what its question counts: a batch given in sequences keeps those, one given in tokens keeps
    its tokens. A batch by default keeps its tokens too, but that of a fine-tuning, whose rule counts sequences.
    """
    options = _replace(before, changes)
    if options.get("pp") != before.get("pp"):
        options = {name: value for name, value in options.items() if name not in _LAYERS or name in changes}
        if options.get("pp") == 1.0 and "vpp" not in changes:
            options["vpp"] = 1.0
    if "sp" not in changes and before.get("sp") == (before.get("tp", 1.0) > 1.0):
        options["sp"] = options.get("tp", 1.0) > 1.0
    options |= _data_parallel(before, options, changes)
    options, batch = _hold_tokens(before, options, given, folders) if not set(_BATCH) & set(changes) else (options, {})
    names = [*before, *(name for name in options if name not in before)]
    followed = {name: (before.get(name), options.get(name)) for name in names if name not in changes and name not in _BATCH}
    return options, {name: pair for name, pair in (followed | batch).items() if pair[0] != pair[1] and name != "sp"}


def _hold_tokens(
    before: Mapping[str, Any], options: dict[str, Any], given: Mapping[str, Any], folders: tuple[str, ...]
) -> tuple[dict[str, Any], dict[str, Change]]:
    """The options with the batch that another sequence length leaves, and its change.

    A batch by default is rounded to the sequences that the plan's ranks start together, so that the plan stays legal.
    """
    batch, length, new_length = before.get("global_batch_size"), before.get("seq_len"), options.get("seq_len")
    if not batch or not length or not new_length or length == new_length:
        return options, {}
    if "global_batch_tokens" in given:
        rest = {name: value for name, value in options.items() if name != "global_batch_size"}
        return {**rest, "global_batch_tokens": given["global_batch_tokens"]}, {}
    if "global_batch_size" in given or fine_tuned_each(asked_of(options), folders):
        return options, {}
    axes = {name: options.get(name) for name in ("gpus", "tp", "pp", "cp", "vpp", "micro_batch_size", "microbatch_group")}
    held = defaults.batch_of_ranks(defaults.sequences_at_once(**axes), batch * length / new_length)
    return {**options, "global_batch_size": held}, {"global_batch_size": (batch, held)}


def _replace(options: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """Replace some options, and leave out those that exclude a new one."""
    gone = {old for pair in _ONE_OF for new, old in (pair, pair[::-1]) if new in changes}
    return {**{name: value for name, value in options.items() if name not in gone}, **changes}


def _data_parallel(before: Mapping[str, Any], options: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, float]:
    """The data-parallel ranks that remain beside the other axes, split as before; nothing where they are no whole numbers."""
    if all(options.get(name) == before.get(name) for name in ("gpus", "tp", "pp", "cp", "zero", "dp_replicate", "dp_shard")):
        return {}
    ranks = options.get("gpus", 1.0) / (options.get("tp", 1.0) * options.get("pp", 1.0) * options.get("cp", 1.0))
    if "dp_shard" in changes:
        split = {"dp_replicate": ranks / options["dp_shard"]}
    elif "dp_replicate" in changes:
        split = {"dp_shard": ranks / options["dp_replicate"]}
    elif options.get("zero") == 0.0:
        split = {"dp_replicate": ranks, "dp_shard": 1.0}
    else:
        copies = before.get("dp_replicate", 1.0) if before.get("zero") else 1.0
        split = {"dp_replicate": copies, "dp_shard": ranks / copies}
    if not all(value.is_integer() and value >= 1.0 for value in split.values()):
        return {}
    return {name: value for name, value in split.items() if name not in changes}


def chosen_plan(estimate: Estimate) -> dict[str, Any]:
    """The options of an estimate's plan, in the form that its JSON has."""
    group, at = estimate.place_of(0)
    plan: dict[str, Any] = asked_data(group, at)["plan"]
    return plan


def plan_changes(held: Held) -> dict[str, Change]:
    """What differs between the held plan with its changes and the plan that the tool chooses anew."""
    if held.anew is None:
        return {}
    before, after = chosen_plan(held.after), chosen_plan(held.anew)
    names = [*before, *(name for name in after if name not in before)]
    return {name: (before.get(name), after.get(name)) for name in names if before.get(name) != after.get(name)}


def likely_faster(held: Held) -> float | None:
    """How much less time the plan chosen anew takes than the held one by what was measured of predicted differences; None without both."""
    seconds = [None if estimate is None else results(estimate)["seconds"] for estimate in (held.after, held.anew)]
    if seconds[0] is None or seconds[1] is None or not plan_changes(held):
        return None
    return 1.0 - float(likely_ratio(seconds[1] / seconds[0], gain_slope(held.after.folders)))


def results(estimate: Estimate) -> dict[str, float | None]:
    """Step time, memory, MFU, tokens per second, and the money of a run; None where there is none."""
    group, at = estimate.place_of(0)
    legal = bool(group.legal[at])
    usd = None if group.run is None else group.run.usd.value
    rates = {name: group.throughput[name].value for name in ("mfu", "tokens_per_second")}
    columns = {"seconds": group.step.tree.value, "bytes": group.memory.device, **rates, "usd": usd}
    return {name: number(column, at) if legal and column is not None else None for name, column in columns.items()}


def differences(before: Mapping[str, float | None], after: Mapping[str, float | None]) -> dict[str, float | None]:
    """After minus before, where both have a value."""
    return {name: None if (old := before[name]) is None or (new := after[name]) is None else new - old for name in before}


def is_reproduced(held: Held) -> bool:
    """True where the tool of today gives the numbers that the file has."""
    now = results(held.before)
    pairs = ((now["seconds"], held.saved.seconds), (now["bytes"], held.saved.data["memory"]["device"]))
    return all(x == y or (x is not None and y is not None and abs(x - y) <= _SAME * abs(y)) for x, y in pairs)


def held_data(held: Held) -> dict[str, Any]:
    """The held plan, the changes and their effect, as plain data."""
    before = results(held.before)

    def entry(estimate: Estimate | None) -> dict[str, Any] | None:
        if estimate is None:
            return None
        values = results(estimate)
        return {"fits": bool(estimate.fits[0]), "plan": chosen_plan(estimate), "results": values, "difference": differences(before, values)}

    return {
        "answer": held.saved.name,
        "reproduced": is_reproduced(held),
        "changed": _pairs(held.changed),
        "followed": _pairs(held.followed),
        "before": {"plan": chosen_plan(held.before), "results": before},
        "held": entry(held.after),
        "anew": entry(held.anew),
        "likely_faster": likely_faster(held),
        "another_plan": {name: list(pair) for name, pair in plan_changes(held).items()},
    }


def _pairs(changes: Mapping[str, Change]) -> dict[str, list[Any]]:
    return {name: [None if value is None else as_option(name, value) for value in pair] for name, pair in changes.items()}
