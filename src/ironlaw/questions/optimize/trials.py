"""Techniques tried on a held plan, one at a time, each by an estimate of the changed plan."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ironlaw.estimate.answer.bands import likely_rate
from ironlaw.estimate.what_if.change_options import change_options
from ironlaw.progress import steps
from ironlaw.question.assumptions import printed
from ironlaw.questions.answer import Column
from ironlaw.questions.optimize.options import LOADER
from ironlaw.questions.optimize.setting import Measure, Refused, Setting, estimate_of, measure
from ironlaw.questions.optimize.techniques import TECHNIQUES, Technique, conflicts
from ironlaw.questions.plan_words import describe_plan

SEARCHED = 8  # techniques whose plan is chosen anew, where none of the plan they are tried on is possible: each takes a search
TRIED = (
    Column("technique", "technique"), Column("options", "options"), Column("lowers", "lowers", on_page=False),
    Column("training", "changes run"),
    Column("seconds", "step", "s"), Column("ratio", "time per token", "%"), Column("likely_gain", "likely gain", "%", on_page=False),
    Column("device", "memory", "B"),
    Column("saved", "saves", "B", on_page=False),
    Column("fits", "fits"), Column("usd", "USD", "USD", on_page=False), Column("joules", "energy", "J", on_page=False),
    Column("kg_co2e", "CO2e", "kg", on_page=False),
    Column("moves", "improves", on_page=False), Column("dam", "class", on_page=False),
    Column("plan", "with another plan"), Column("why_not", "", on_page=False),
    Column("clashes", "conflicts with", on_page=False),
)  # fmt: skip
NOT_TRIED = (Column("technique", "technique"), Column("lowers", "lowers", on_page=False), Column("why_not", "why not"))


@dataclass(frozen=True, eq=False)
class Trial:
    """One technique, or several, tried on a plan. A gain counts tokens per second, which compares larger batches fairly."""

    techniques: tuple[Technique, ...]
    change: Mapping[str, Any]  # options that they set
    base: Measure
    after: Measure | None = None
    conflicts: tuple[str, ...] = ()  # techniques that set the same options
    plan: str = ""  # the plan, where the held one is not possible with the technique
    why_not: str = ""
    folders: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """The techniques by name."""
        return " + ".join(technique.name for technique in self.techniques)

    @property
    def lowers(self) -> tuple[str, ...]:
        """The roofs that the first of them lowers, the first most."""
        return self.techniques[0].lowers

    @property
    def lowers_most(self) -> str:
        """The roof that it lowers most."""
        return self.lowers[0]

    @property
    def options(self) -> str:
        """The options that they set, as they are typed."""
        return as_flags(self.change)

    @property
    def trains(self) -> bool:
        """True where the training is another one."""
        return any(technique.trains for technique in self.techniques)

    @property
    def fits(self) -> bool:
        """True where the changed plan is possible and fits."""
        return self.after is not None and self.after.fits

    @property
    def gain(self) -> float | None:
        """More tokens per second, as a share of those of the plan."""
        return None if self.after is None else self.after.tokens_per_second / self.base.tokens_per_second - 1.0

    @property
    def likely_gain(self) -> float | None:
        """The gain that is to be expected of the predicted one (``bands.likely_rate``).

        It was learned from plans of one job: of another precision, or another training, the predicted gain stays.
        """
        if self.gain is None or any(technique.moves == "peak" or technique.trains for technique in self.techniques):
            return self.gain
        return float(likely_rate(1.0 + self.gain, self.folders)) - 1.0

    @property
    def saved(self) -> float | None:
        """Device memory that is freed [B]."""
        return None if self.after is None else self.base.device - self.after.device

    @property
    def at_best(self) -> float | None:
        """Time per token over that of the plan if the roofs that it lowers cost nothing (Amdahl's law); None where it moves time."""
        (technique, *others) = self.techniques
        if others or technique.moves_time or technique.moves == "peak":
            return None
        return max(1.0 - sum(self.base.shares[roof] for roof in technique.lowers), 0.0)

    def row(self) -> dict[str, Any]:
        """The row of the table; money, energy and carbon are of a million tokens."""
        first, after = self.techniques[0], self.after
        numbers: dict[str, Any] = dict.fromkeys(("seconds", "ratio", "device", "usd", "joules", "kg_co2e"))
        if after is not None:
            ratio = self.base.tokens_per_second / after.tokens_per_second
            numbers = {name: getattr(after, name, ratio) for name in numbers}
        roofs = dict.fromkeys(roof for technique in self.techniques for roof in technique.lowers)
        return {
            "technique": self.name, "options": self.options, "lowers": ", ".join(roofs), "training": "yes" if self.trains else "",
            **numbers, "gain": self.gain, "likely_gain": self.likely_gain, "saved": self.saved, "fits": self.fits,
            "at_best": self.at_best, "moves": first.moves, "dam": first.axis, "clashes": ", ".join(self.conflicts), "plan": self.plan,
            "why_not": self.why_not,
            "change": {name: sorted(v) if isinstance(v, frozenset) else v for name, v in self.change.items()},
        }  # fmt: skip


def as_flags(change: Mapping[str, Any]) -> str:
    """Options as they are typed.

    >>> as_flags({"recompute": "segments:4", "sp": True, "tp": 8.0, "overlap": frozenset({"tp"})})
    '--recompute segments:4 --sp on --tp 8 --overlap tp'
    """
    words = {name: ("off", "on")[value] if isinstance(value, bool) else printed(value) or "none" for name, value in change.items()}
    return " ".join(f"--{name.replace('_', '-')} {word}" for name, word in words.items())


@dataclass(frozen=True)
class Tried:
    """All techniques on one plan: those tried, best first, and those that were not or cannot be, with the reason."""

    base: Measure
    trials: tuple[Trial, ...]
    not_tried: tuple[tuple[Technique, str], ...]

    def named(self, name: str) -> Trial | None:
        """The trial of one technique."""
        return next((trial for trial in self.trials if trial.name == name), None)


def try_all(setting: Setting, anew: bool = True) -> Tried:
    """Every technique alone on a plan: those that fit first, then by time where the plan fits, by memory where it does not.

    With ``anew`` a technique that the held plan excludes is tried with the plan that is chosen for it.
    """
    base = measure(setting, setting.group)
    changes: dict[str, dict[str, Any]] = {}
    not_tried = []
    for technique in TECHNIQUES:
        change = technique.change(setting)
        if isinstance(change, str):
            not_tried.append((technique, change))
        elif change is not None:
            changes[technique.name] = change
    trials: list[Trial] = []
    for technique in steps([one for one in TECHNIQUES if one.name in changes], "techniques", lambda: _best_so_far(trials)):
        others = conflicts(technique, changes)
        trials.append(replace(try_change(setting, base, (technique,), changes[technique.name]), conflicts=others))
    if anew:
        trials = _choose_anew(setting, trials)
    for trial in trials:
        if trial.after is None:
            prefix = "" if isinstance(trial.why_not, Refused) and trial.why_not.option else f"{trial.options}: "
            not_tried.append((trial.techniques[0], prefix + trial.why_not))
    possible = [trial for trial in trials if trial.after is not None]
    return Tried(base, tuple(sort_trials(possible, base.fits)), tuple(not_tried))


def _best_so_far(trials: Sequence[Trial]) -> str:
    """The technique with the largest gain so far, and its gain."""
    best = max((trial for trial in trials if trial.fits), key=lambda trial: trial.gain or 0.0, default=None)
    return f"{best.name} {best.gain:+.1%}" if best is not None and best.gain is not None and best.gain > 0.0 else ""


def sort_trials(trials: Sequence[Trial], fits: bool) -> list[Trial]:
    """Those that fit first; then by tokens per second, or where the plan does not fit and they do not either, by memory."""

    def preference(trial: Trial) -> tuple[bool, float]:
        if trial.after is None:
            return True, float("inf")
        return not trial.fits, -trial.after.tokens_per_second if trial.fits or fits else trial.after.device

    return sorted(trials, key=preference)


def try_change(setting: Setting, base: Measure, techniques: tuple[Technique, ...], change: Mapping[str, Any]) -> Trial:
    """Estimate a held plan with the options that techniques set."""
    trial = Trial(techniques, change, base, folders=setting.folders)
    changed = change_setting(setting, change)
    if isinstance(changed, str):
        return replace(trial, why_not=changed)
    after = measure(changed, changed.group)
    return replace(trial, after=after, why_not="" if after.fits else "does not fit")


def change_setting(setting: Setting, change: Mapping[str, Any]) -> Setting | str:
    """The held plan with some options changed, or in words why there is none."""
    loader = {**setting.loader, **{name: value for name, value in change.items() if name in LOADER}}
    mine = {name: value for name, value in change.items() if name not in LOADER}
    if not mine:
        return replace(setting, loader=loader)
    options, _ = change_options(setting.held, setting.given, mine, setting.folders)
    estimate = estimate_of(options, setting.folders)
    return estimate if isinstance(estimate, str) else replace(setting, group=estimate.groups[0], held=options, loader=loader)


def _choose_anew(setting: Setting, trials: list[Trial]) -> list[Trial]:
    """Choose a plan for techniques that the held plan excludes, if they are no change of the plan itself."""
    mesh = {"tp", "pp", "vpp", "cp", "ep", "micro_batch_size", "zero", "dp_shard", "dp_replicate"}
    left = SEARCHED
    for at, trial in enumerate(trials):
        if trial.after is None and left and not mesh & set(trial.change):
            left -= 1
            trials[at] = _with_plan(setting, trial)
    return trials


def _with_plan(setting: Setting, trial: Trial) -> Trial:
    """A trial with the plan, and the framework where none is given, that are chosen for it; the trial itself where that has none."""
    options = {**setting.given, **trial.change, "margin": setting.held["margin"]}
    estimate = estimate_of(options, setting.folders)
    if isinstance(estimate, str):
        return trial
    group = estimate.groups[0]
    after, stack = measure(setting, group), group.job.framework.name
    change = trial.change if stack == setting.held["framework"] else {**trial.change, "framework": stack}
    return replace(
        trial, change=change, after=after, plan=describe_plan(estimate, framework=False), why_not="" if after.fits else "does not fit"
    )
