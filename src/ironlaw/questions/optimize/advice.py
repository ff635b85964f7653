"""What every technique does to a plan, and which to combine: profile, select, compose."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ironlaw import units
from ironlaw.cautions.record import Sentence, read_record
from ironlaw.errors import QuestionError
from ironlaw.estimate.answer.estimate import answer
from ironlaw.estimate.bind.money import bind_money
from ironlaw.estimate.layer.counts import total_parameters
from ironlaw.estimate.what_if.near_counts import no_such_plan
from ironlaw.question.asked import asked_of
from ironlaw.question.assumptions import Assumptions
from ironlaw.questions.answer import Answer, Column, Table, filled_columns
from ironlaw.questions.optimize.combine import COMBINED, MOST, STEPS, WORTH, Combined, bound_of, compose, fewest_that_fit
from ironlaw.questions.optimize.options import LOADER, MEASURED
from ironlaw.questions.optimize.rules_of_thumb import classify_bottleneck, recommend_scale
from ironlaw.questions.optimize.setting import TOKENS, Measure, Setting, bind_loader, hold_plan
from ironlaw.questions.optimize.trials import NOT_TRIED, TRIED, Trial, Tried, try_all

# the D.A.M. class (data, algorithm, machine) of each bound of a step
CLASSES = {"compute": "algorithm", "hbm": "machine", "network": "machine", "pipeline": "machine", "dispatch": "machine", "data": "data"}
COMBINE = 3  # techniques combined by default
ROOFS = (
    Column("roof", "bound"), Column("dam", "class", on_page=False), Column("share", "of the step", "%"),
    Column("at_best", "time without it", "%"),
    Column("techniques", "lowered by"),
)  # fmt: skip
MONEY = f"USD, energy and CO2e are of {TOKENS / 1e6:g} million tokens, at rated power"
LOSES = 0.001  # share of the tokens per second: technique that loses less changes nothing worth naming


def advise(values: dict[str, Any], asked: dict[str, Any], folders: tuple[str, ...]) -> Answer:
    """What each technique does to a plan that is held, and what the best do together."""
    loader = {name: values.pop(name) for name in LOADER if name in values}
    estimate = answer(
        {name: value for name, value in values.items() if name not in ("price", "grid", "pue") or "tokens" in values}, folders
    )
    if estimate.rows > 1:
        raise QuestionError("optimize takes one plan: give one value for every option")
    group, at = estimate.place_of(0)
    if not group.legal[at]:
        raise no_such_plan(estimate)
    notes: Assumptions = []
    money = bind_money(asked_of(values), group.cluster, folders, notes)
    setting = hold_plan(group, values, loader, money, folders)
    if loader:
        bind_loader(setting, group, notes)
    tried = try_all(setting)
    combined = Combined((), ()) if tried.base.fits else fewest_that_fit(setting, tried)
    steps = compose(setting, tried, int(asked.get("most", COMBINE))) if tried.base.fits else []
    row = estimate.row(0)
    known = {item["name"] for item in row["assumptions"]}
    return Answer(
        title=f"What optimisations do to {row['plan']['model']} on {row['plan']['gpus']} x {row['plan']['accelerator']}",
        headline=_headline(setting, tried, combined, asked),
        tables=_tables(tried, combined, steps),
        terms=(group.step.tree, group.memory.tree),
        values={"bound": bound_of(tried), "dam": CLASSES[bound_of(tried)], "plan": row["plan"], "base": _base_row(tried.base)},
        assumptions=[*row["assumptions"], *(item for item in notes if item["name"] not in known)],
        warnings=[read_record(one) for one in row["warnings"]],
        feasible=tried.base.fits or bool(combined.unchanged) or any(trial.fits and not trial.trains for trial in tried.trials),
        folders=folders,
    )


def _base_row(base: Measure) -> dict[str, Any]:
    """The plan itself, in the numbers that the rows of techniques have."""
    return {name: getattr(base, name) for name in ("seconds", "tokens_per_second", "waiting", "device", "fits", "usd", "joules", "kg_co2e")}


def _tables(tried: Tried, combined: Combined, steps: list[dict[str, Any]]) -> tuple[Table, ...]:
    """Each technique alone, combinations, the roofs, and what was not tried."""
    rows = [trial.row() for trial in tried.trials]
    columns = filled_columns(TRIED, rows)
    both = [trial.row() for trial in (*combined.unchanged, *combined.changed)]
    reasons = [{"technique": technique.name, "lowers": ", ".join(technique.lowers), "why_not": why} for technique, why in tried.not_tried]
    order = "by time" if tried.base.fits else "those that fit, then by memory"
    return (
        Table("techniques", f"Each technique alone on this plan, {order} ({MONEY})", columns, rows),
        Table("combinations", "The fewest techniques that fit together", COMBINED, both),
        Table("composed", "Profile, select, compose (the training stays as it is)", STEPS, steps),
        Table("roofs", "If a bound cost nothing", ROOFS, _roof_rows(tried)),
        Table("not_tried", "Not tried, or not possible on this plan", NOT_TRIED, reasons, on_page=False),
    )


def _headline(setting: Setting, tried: Tried, combined: Combined, asked: Mapping[str, Any]) -> list[str]:
    """The bound, what gains most or makes the plan fit, and what rules of thumb say."""
    base, bound = tried.base, bound_of(tried)
    waiting = f", {units.show(base.waiting, 's')} of it waiting for data" if base.waiting else ""
    lines = [
        Sentence(
            f"{bound}-bound: a step takes {units.show(base.seconds, 's')}{waiting}, "
            f"{units.show(base.device, 'B')} of {units.show(base.capacity, 'B')}",
            "bound",
            {"by": bound, "seconds": base.seconds, "bytes": base.device, "capacity_bytes": base.capacity},
        ),
        *(_say_gains(tried) if base.fits else _say_fits(tried, combined)),
    ]
    if any(name in asked for name in MEASURED):
        lines.append(f"by utilisation alone (simplified): {classify_bottleneck(asked)}")
    if "dataset" in asked:
        scale = recommend_scale(float(total_parameters(setting.group.job.model)), asked["dataset"])
        lines.append(f"by sizes alone (simplified): {scale}")
    return lines


def _say_gains(tried: Tried) -> list[Sentence]:
    """Which technique gains most, and whether one that changes the training gains more."""
    fitting = [trial for trial in tried.trials if trial.fits and trial.gain is not None and trial.gain >= WORTH]
    same, other = ([trial for trial in fitting if trial.trains is trains] for trains in (False, True))
    tally = f"{len(tried.trials)} were tried, {len(tried.not_tried)} were not (--format csv:not_tried)"
    none = f"no technique that fits and keeps the training gains half a percent: {tally}"
    lines = [_say_gain(same[0], "gains most") if same else Sentence(none, "no-gain")]
    if other and (not same or (other[0].gain or 0.0) > (same[0].gain or 0.0)):
        said = _say_gain(other[0], "gains more" if same else "gains")
        lines.append(Sentence(f"{said}, and changes the training", said.code, said.values))
    return lines


def _say_gain(trial: Trial, verb: str) -> Sentence:
    """One technique, its step time and its tokens per second against the plan's."""
    assert trial.after is not None and trial.gain is not None
    assert trial.likely_gain is not None
    many = trial.likely_gain > 1.0
    likely, predicted = (f"{1.0 + gain:.3g}" if many else f"{gain:+.1%}" for gain in (trial.likely_gain, trial.gain))
    times = " times the" if many else ""
    rate = f"{predicted}{times} tokens/s" if likely == predicted else f"likely {likely}{times} tokens/s ({predicted} predicted)"
    steps = f"step {units.show(trial.base.seconds, 's')} to {units.show(trial.after.seconds, 's')}"
    plan = f", with another plan: {trial.plan}" if trial.plan else ""
    words = f"{trial.name} {verb}: {rate} ({steps}), by lowering {' and '.join(trial.lowers[:2])}{plan}"
    return Sentence(words, "gain", {"technique": trial.name, "gain": trial.gain, "trains": trial.trains})


def _say_fits(tried: Tried, combined: Combined) -> list[str]:
    """What makes the plan fit: one technique, or the fewest together; with the training as it is, and with another one."""
    base = tried.base
    more = f"{units.show(base.device - base.capacity, 'B')} more than there is"
    lines = [f"it does not fit: {more}" if base.device > base.capacity else "it does not fit with the memory to be kept free"]
    for trains, together in ((False, combined.unchanged), (True, combined.changed)):
        alone = [trial for trial in tried.trials if trial.fits and trial.trains is trains]
        kept = "changes the training" if trains else "keeps the training as it is"
        if alone:
            lines.append(f"any one of these makes it fit and {kept}: {', '.join(trial.name for trial in alone)}")
        elif together:
            best = together[0]
            assert best.after is not None
            fits = f"{units.show(best.after.device, 'B')}, step {units.show(best.after.seconds, 's')}"
            lines.append(f"{len(best.techniques)} techniques together make it fit, which {kept}: {best.name} ({fits})")
        elif not trains:
            lines.append(f"with the training as it is nothing that was tried makes it fit, up to {MOST} techniques together")
    return lines


def _roof_rows(tried: Tried) -> list[dict[str, Any]]:
    """The share of each roof, the time without it, and the techniques that lower it and gain, the largest share first."""
    gaining = [trial for trial in tried.trials if trial.fits and (trial.gain or 0.0) > LOSES]
    rows = []
    for roof, share in sorted(tried.base.shares.items(), key=lambda item: -item[1]):
        if share > 0:
            lowering = [trial.name for trial in gaining if trial.lowers_most == roof]
            names = ", ".join(lowering[:3])
            rows.append({"roof": roof, "dam": CLASSES[roof], "share": share, "at_best": 1.0 - share, "techniques": names})
    return rows
