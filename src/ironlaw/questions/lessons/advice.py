"""Try every technique on a plan, then combine the best: profile, select, compose."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ironlaw.errors import IronlawError, PlanError, QuestionError
from ironlaw.estimate.answer import answer
from ironlaw.estimate.layer.counts import total_parameters
from ironlaw.estimate.near_counts import why_impossible
from ironlaw.question import defaults
from ironlaw.questions.answer import Answer, Column, Table
from ironlaw.questions.lessons.rules_of_thumb import classify_bottleneck, recommend_scale
from ironlaw.questions.lessons.techniques import TECHNIQUES, Technique, conflicts

# the D.A.M. class (data, algorithm, machine) of each bound of a step
CLASSES = {"compute": "algorithm", "hbm": "machine", "network": "machine", "pipeline": "machine", "dispatch": "machine", "data": "data"}
WORTH = 0.005  # gain in tokens/s below which no further technique is combined
STEPS = 3  # techniques combined by default
MESH = ("tp", "pp", "vpp", "cp", "ep", "etp", "dp_replicate", "dp_shard", "zero", "micro_batch_size", "global_batch_size", "seq_len")
TECHNIQUE_COLUMNS = (
    Column("technique", "technique"), Column("moves", "improves"), Column("dam", "class"), Column("gain", "tokens/s", "%"),
    Column("at_best", "at best", "%"), Column("memory", "memory", "B"), Column("fits", "fits"), Column("clashes", "conflicts with"),
    Column("why_not", ""),
)  # fmt: skip
STEP_COLUMNS = (
    Column("step", "step", "1"), Column("profile", "bound"), Column("technique", "selected"), Column("gain", "gain", "%"),
    Column("together", "total gain", "%"), Column("memory", "memory used", "%"), Column("seconds", "step time", "s"),
)  # fmt: skip
ROOF_COLUMNS = (
    Column("roof", "bound"), Column("dam", "class"), Column("share", "of the step", "%"), Column("at_best", "gain without it", "%"),
)  # fmt: skip


@dataclass(frozen=True)
class Trial:
    """One technique tried on a plan. The gain counts tokens per second, which compares larger batches fairly."""

    technique: Technique
    change: dict[str, Any]  # options that the technique sets
    at_best: float | None  # gain if the bounds it addresses took no time (Amdahl's law)
    conflicts: tuple[str, ...]  # techniques that set the same options
    gain: float | None = None
    memory: float | None = None  # more device memory [B]
    fits: bool = False
    why_not: str = ""

    def row(self) -> dict[str, Any]:
        """The row of the table."""
        return {
            "technique": self.technique.name, "moves": self.technique.moves, "dam": self.technique.axis, "at_best": self.at_best,
            "gain": self.gain, "memory": self.memory, "fits": self.fits, "why_not": self.why_not,
            "change": {name: sorted(v) if isinstance(v, frozenset) else v for name, v in self.change.items()},
            "clashes": ", ".join(self.conflicts),
        }  # fmt: skip


def advise(values: dict[str, Any], lesson: dict[str, Any], folders: tuple[str, ...]) -> Answer:
    """What each technique gains on a plan, and what the best gain together."""
    base = answer(values, folders)
    if base.rows > 1:
        raise QuestionError("lessons takes one plan: give one value for every option")
    row = base.row(0)
    if row["step"]["seconds"] is None:
        raise PlanError(f"no such plan: {why_impossible(base)}")
    group, _ = base.place_of(0)
    options = {**values, **_options_of(row["plan"])}
    trials = try_techniques(options, row, folders)
    bound, shares = row["bound"]["by"], row["bound"]["shares"]
    headline = [f"{bound}-bound (D.A.M. class: {CLASSES[bound]})", _best_sentence(trials, row["memory"]["fits"])]
    if "gpu_utilization" in lesson:
        headline.append(f"by utilisation alone (simplified): {classify_bottleneck(lesson)}")
    if "dataset" in lesson:
        scale = recommend_scale(float(total_parameters(group.job.model)), lesson["dataset"])
        headline.append(f"by sizes alone (simplified): {scale}")
    steps = combine_techniques(options, row, trials, int(lesson.get("most", STEPS)), folders)
    return Answer(
        title=f"What optimisations do to {row['plan']['model']} on {row['plan']['gpus']} x {row['plan']['accelerator']}",
        headline=headline,
        tables=(
            Table(
                "techniques",
                "Each technique alone (at best: if what it addresses cost nothing)",
                TECHNIQUE_COLUMNS,
                [t.row() for t in trials],
            ),
            Table("composed", "Profile, select, compose", STEP_COLUMNS, steps),
            Table("roofs", "Gain if a bound cost nothing", ROOF_COLUMNS, _roof_rows(shares)),
        ),
        terms=(group.step.tree,),
        values={"bound": bound, "dam": CLASSES[bound], "plan": row["plan"]},
        assumptions=row["assumptions"],
        warnings=row["warnings"],
        feasible=row["memory"]["fits"] or any(trial.fits for trial in trials),
        folders=folders,
    )


def _options_of(plan: Mapping[str, Any]) -> dict[str, Any]:
    """The options that reproduce the plan of a row."""
    mesh = {name: float(plan[name]) for name in MESH}
    return {
        **mesh, "sp": plan["sp"], "recompute": plan["recompute"], "framework": plan["framework"], "overlap": frozenset(plan["overlap"]),
    }  # fmt: skip


def try_techniques(options: dict[str, Any], row: Mapping[str, Any], folders: tuple[str, ...]) -> list[Trial]:
    """Every technique alone on the plan of a row, best first."""
    plan = {**row["plan"], "optimizer": options.get("optimizer", defaults.OPTIMIZER)}
    changes = {technique.name: technique.change(plan) for technique in TECHNIQUES}
    trials = []
    for technique in TECHNIQUES:
        change = changes[technique.name]
        if change is not None:
            trials.append(_try_technique(technique, change, conflicts(technique, changes), options, row, folders))
    return sorted(trials, key=lambda trial: (-trial.fits, -(trial.gain if trial.gain is not None else -2.0)))


def _try_technique(
    technique: Technique,
    change: dict[str, Any],
    others: tuple[str, ...],
    options: dict[str, Any],
    row: Mapping[str, Any],
    folders: tuple[str, ...],
) -> Trial:
    """Estimate the plan with one technique, and compare its rate and memory with the plan's."""
    addressed = sum(row["bound"]["shares"][roof] for roof in technique.roofs)
    at_best = addressed / (1.0 - addressed) if technique.roofs and addressed < 1.0 else None
    changed = _estimate_row({**options, **change}, folders)
    if isinstance(changed, str):
        return Trial(technique, change, at_best, others, why_not=changed)
    fits = changed["memory"]["fits"]
    return Trial(
        technique, change, at_best, others,
        gain=changed["throughput"]["tokens_per_second"] / row["throughput"]["tokens_per_second"] - 1.0,
        memory=changed["memory"]["device"] - row["memory"]["device"], fits=fits, why_not="" if fits else "does not fit",
    )  # fmt: skip


def _estimate_row(options: dict[str, Any], folders: tuple[str, ...]) -> dict[str, Any] | str:
    """The estimate of changed options, or why there is none."""
    try:
        row = answer(options, folders).row(0)
    except IronlawError as error:
        return str(error)
    return row if row["step"]["seconds"] is not None else "; ".join(row["warnings"][-1:])


def combine_techniques(
    options: dict[str, Any], row: dict[str, Any], trials: list[Trial], most: int, folders: tuple[str, ...]
) -> list[dict[str, Any]]:
    """Apply the technique that gains most and fits, try all on the result, and repeat."""
    first, steps = row["throughput"]["tokens_per_second"], []
    for number in range(1, most + 1):
        best = next((trial for trial in trials if trial.fits), None)
        if best is None or best.gain is None or (best.gain < WORTH and row["memory"]["fits"]):
            break
        options = {**options, **best.change}
        changed = _estimate_row(options, folders)
        if isinstance(changed, str):
            break
        steps.append({
            "step": number,
            "profile": row["bound"]["by"],
            "technique": best.technique.name,
            "gain": best.gain,
            "together": changed["throughput"]["tokens_per_second"] / first - 1.0,
            "memory": changed["memory"]["device"] / changed["memory"]["capacity_bytes"],
            "seconds": changed["step"]["seconds"],
        })  # fmt: skip
        row = changed
        if number < most:
            trials = try_techniques(options, row, folders)
    return steps


def _best_sentence(trials: Sequence[Trial], fits: bool) -> str:
    """Which technique gains most, or which makes the plan fit."""
    fitting = [trial for trial in trials if trial.fits]
    if not fits:
        names = ", ".join(trial.technique.name for trial in fitting)
        return (
            f"it does not fit; with any one of these it does: {names}"
            if fitting
            else "it does not fit, and no single technique changes that"
        )
    if not fitting or fitting[0].gain is None or fitting[0].gain < WORTH:
        return "no single technique that fits gains half a percent"
    return f"{fitting[0].technique.name} gains most: {fitting[0].gain:+.1%} tokens/s"


def _roof_rows(shares: Mapping[str, float]) -> list[dict[str, Any]]:
    """The share of each roof, and the gain if all of it went away, the largest first."""
    rows = [
        {"roof": roof, "dam": CLASSES[roof], "share": share, "at_best": share / (1.0 - share)}
        for roof, share in shares.items()
        if share > 0
    ]
    return sorted(rows, key=lambda row: -row["share"])
