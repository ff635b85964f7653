"""A search: sweep every setting of a question, then list the plans that meet it, each with its estimate."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np

from ironlaw.catalog import load
from ironlaw.errors import QuestionError
from ironlaw.estimate.answer.estimate import Estimate, answer_asked
from ironlaw.estimate.bind.batch import batch_range
from ironlaw.estimate.planner.evidence import evidence_scores, scores, sort_by_score
from ironlaw.estimate.planner.grid import usable_choices
from ironlaw.estimate.planner.pages import keep_pages
from ironlaw.estimate.planner.plans import Plans, join_plans, sort_plans
from ironlaw.estimate.planner.rows import row_of
from ironlaw.estimate.planner.space import ENDS, WORDS
from ironlaw.estimate.planner.unsearched import unsearched
from ironlaw.progress import steps, watched
from ironlaw.question import defaults
from ironlaw.question.asked import Asked, with_options
from ironlaw.question.fields import Row
from ironlaw.question.options import flag
from ironlaw.search.question import Question, read_question
from ironlaw.search.setting import Setting, bounds_of, counts_of, on_count, with_row
from ironlaw.search.sizing import is_sized, meets_limits, sized
from ironlaw.search.sweep import KIND_AXES, Sweep, fastest_plans, kind_numbers, pareto_plans, preferred_plans, within_score
from ironlaw.shown import Columns, Shown, writer

if TYPE_CHECKING:
    from ironlaw.catalog.citations import Citations

# options that change the cost or the ranking of plans, but not their step time
AGAIN = (
    "price", "grid", "pue", "tokens", "budget", "deadline", "target_tokens_per_second", "minimize", "pareto", "top", "failures", "mttf",
    "restart_time", "checkpoint_every", "checkpoint_bandwidth", "evaluate_every", "evaluation_tokens", "time_limit",
)  # fmt: skip
PLANNED = tuple(name for name in Row._fields if name not in ("global_batch_size", "seq_len"))  # columns that a plan sets
Progress = Callable[[str], None]


@dataclass(frozen=True, eq=False, repr=False)
class Choice(Shown):
    """One plan of a setting, as the options of an estimate."""

    setting: Setting
    values: dict[str, Any]
    seconds: float
    device: float
    price: float = 1.0  # what it must be faster by for what no published run measured; see ``planner.evidence``
    unpublished: float = 1.0  # what it must be faster by where published layouts are near the job and it is none of them

    @property
    def score(self) -> float:
        """Seconds by which plans of a setting are ordered."""
        return self.seconds * self.price

    @property
    def kind(self) -> tuple[Any, ...]:
        """Accelerator, variant, framework, and the axes of the mesh that the plan uses.

        Plans of one kind differ only in degree, or in the method of context parallelism.
        """
        used = (bool(self.values[axis] > 1.0) for axis in KIND_AXES)
        variant = (value for name, value in self.setting.variant.items() if name != "cp_method")
        return (self.setting.on, *variant, self.setting.framework, *used)

    def has_less_evidence(self, best: Choice) -> bool:
        """True for a plan that is faster than the best one, which was taken because it was measured or published."""
        return self.seconds < best.seconds and self.price * self.unpublished > best.price * best.unpublished

    def same_as(self, other: Choice) -> bool:
        """True for the same plan of the same setting."""
        return self.setting is other.setting and self.values == other.values


@dataclass(eq=False, repr=False)
class SearchResult(Shown, Columns):
    """The settings of a question, swept. ``again`` answers for other prices, limits or tokens without a new search.

    ``to_pandas`` and the other tables have the plans that the page lists.
    """

    question: Question
    settings: list[Setting]
    seconds: float
    partial: bool
    folders: tuple[str, ...]
    cache: dict[Any, Estimate] = field(default_factory=dict)
    tried: list[Setting] = field(default_factory=list)  # other numbers of accelerators that the search timed, without a sweep

    def again(self, **changed: Any) -> SearchResult:
        """The same search under another price, budget, deadline, rate, tokens, objective or front; at once, unless the number is open."""
        for name in changed:
            if name not in AGAIN:
                raise QuestionError(f"{flag(name)} changes the plans: start a new search (again takes {', '.join(AGAIN)})")
        options = {**self.question.given, **changed}
        question = read_question({name: value for name, value in options.items() if value is not None}, folders=self.folders)
        if is_sized(question) or is_sized(self.question):
            return run(question, self.folders)
        bounds = {(b.asked.on, tuple(v.items())): b for b, v in bounds_of(question, self.folders)}
        settings = []
        for s in self.settings:  # each keeps its batch: the plans are those that were found
            base = bounds[s.base.asked.on, tuple(s.variant.items())]
            settings.append(replace(s, question=question, base=base.replace(asked=base.asked.replace(rows=s.base.asked.rows))))
        return SearchResult(question, settings, self.seconds, self.partial, self.folders, self.cache)

    def to_columns(self) -> dict[str, list[Any]]:
        """The listed plans by column, as the CSV of ``ironlaw plan`` has them."""
        columns: dict[str, list[Any]] = writer().plan_columns(self)
        return columns

    def column_units(self) -> dict[str, str]:
        """The unit of every column; "" for texts and pure numbers."""
        from ironlaw.estimate.answer.columns import UNITS

        return {name: UNITS.get(name, "") for name in self.to_columns()}

    def citations(self) -> Citations:
        """The sources that the listed plans and their objectives used. As text they are BibTeX."""
        from ironlaw.catalog.citations import cite
        from ironlaw.catalog.sourced import Reading, watch_sources
        from ironlaw.estimate.answer.citations import laws_of

        choices = self.listed()[0]
        with watch_sources(reading := Reading()):
            estimates = dict.fromkeys(estimate for estimate, _ in self.explained(choices))
            terms = [term for estimate in estimates for term in estimate.evaluate_again()]
            bounds = {(b.asked.on, *v.items()): b for b, v in bounds_of(self.question, self.folders)} if choices else {}
            for choice in choices:
                setting = choice.setting
                base = with_row(bounds[setting.base.asked.on, *setting.variant.items()], setting.gpus, setting.batch)
                replace(setting, base=base, planned=setting.planned).objectives(choice.seconds)
        return cite(reading.sources, laws_of(terms))

    # --- how much was searched

    @property
    def space(self) -> dict[str, Any]:
        """Counts of the search: mesh rows, choices a row, legal plans, meshes or plans rejected by each rule, plans timed and excluded."""
        sweeps = [s.swept for s in self.settings if s.swept]
        rows, legal, fits = sum(s.rows for s in sweeps), sum(s.legal for s in sweeps), sum(s.fits for s in sweeps)
        timed = sum(s.timed for s in sweeps)
        rejected: Counter[str] = Counter()
        for s in sweeps:
            rejected.update(s.task.mesh.rejected)
        return {
            "rows": rows,
            "options": legal / rows if rows else 0.0,
            "legal": legal,
            "infeasible": {**rejected, "fits": legal - fits},
            "timed": timed,
            "excluded": legal - timed,
            "seconds": self.seconds,
            "partial": self.partial,
        }

    # --- which plans meet the question

    def rank_key(self, setting: Setting, seconds: Any, price: Any = 1.0) -> tuple[Any, ...]:
        """Whether memory stays free, then the objective, then what decides between equals: time, then accelerators.

        Objective and time count ``price`` times: what no published run measured must be faster by more than can be told.
        """
        objectives = setting.objectives(seconds)
        room = np.full(np.shape(objectives["time"]), float(setting.swept.room))
        return (room, price * objectives[self.question.minimize], price * objectives["time"], objectives["gpus"])

    def ranked(self) -> list[Setting]:
        """Settings whose fastest plan meets the question, best first."""
        meeting = [s for s in self.settings if np.isfinite(s.best) and bool(meets_limits(self.question, s.objectives(s.best)))]
        return sorted(meeting, key=lambda s: tuple(float(value) for value in self.rank_key(s, s.best)))

    def first(self, number: int) -> list[Choice]:
        """The first ``number`` plans, of any kind."""
        return self._sort_choices(lambda setting: to_choices(setting, preferred_plans(setting.swept, number)))[:number]

    def of_kinds(self, number: int) -> list[Choice]:
        """The best plan, and the next that differ in kind: other accelerators, or other axes of the mesh."""
        chosen: dict[Any, Choice] = {}
        for choice in self._sort_choices(best_of_each_kind):
            chosen.setdefault(choice.kind, choice)
        listed = list(chosen.values())
        firsts = {
            choice.setting.framework: choice for choice in reversed(listed)
        }.values()  # of frameworks that are compared each has a plan
        picked = [*firsts, *(choice for choice in listed if choice not in firsts)][:number]
        return [choice for choice in listed if choice in picked]

    def _sort_choices(self, choices_of: Callable[[Setting], list[Choice]]) -> list[Choice]:
        """The choices of all settings that meet the question, best first; of equals the first of the first setting."""
        keyed: list[tuple[Any, ...]] = []
        for setting in self.ranked():
            choices = choices_of(setting)
            seconds = np.array([c.seconds for c in choices])
            keys = self.rank_key(setting, seconds, np.array([c.price * c.unpublished for c in choices]) / self._without_layouts(setting))
            meets = meets_limits(self.question, setting.objectives(seconds))
            keyed += [(*(float(key[i]) for key in keys), len(keyed) + i, c) for i, c in enumerate(choices) if meets[i]]
        return [item[-1] for item in sorted(keyed, key=lambda item: item[:-1])]

    def _without_layouts(self, setting: Setting) -> float:
        """What all plans of a setting are dearer by where no published layout is taken: it says nothing of plans for another setting."""
        if not setting.swept.task.published:
            return 1.0
        alike = [s for s in self.settings if s.swept and np.isfinite(s.best) and s.place == setting.place]
        firsts = [(s.swept.room, *first_scores(s)) for s in alike]
        return min(firsts)[-1]

    def fastest_that_fits(self, best: Choice) -> Choice:
        """The fastest plan of the best plan's setting that fits, whether it leaves memory free or not."""
        choices = to_choices(best.setting, pareto_plans(best.setting.swept))
        return min([best, *choices], key=lambda choice: choice.seconds)

    def fastest_without_evidence(self, best: Choice) -> list[Choice]:
        """The fastest plan of the best plan's setting that keeps as much memory free, where the best was preferred for its evidence."""
        fastest = to_choices(best.setting, fastest_plans(best.setting.swept, 1))
        return [choice for choice in fastest if choice.has_less_evidence(best)]

    def listed(self) -> tuple[list[Choice], Choice | None]:
        """The plans that the page lists, and which of them is listed because it is faster than the best, with less memory free."""
        if self.question.top:
            return self.first(self.question.top), None
        choices = self.of_kinds(defaults.PLANS)
        if not choices:
            return [], None
        choices += [one for one in self.fastest_without_evidence(choices[0]) if not any(one.same_as(other) for other in choices)]
        faster = self.fastest_that_fits(choices[0])
        if faster.seconds >= min(choice.seconds for choice in choices if choice.setting is faster.setting):
            return choices, None
        return [*choices, faster], faster

    def pareto(self) -> list[tuple[Choice, dict[str, float]]]:
        """The plans that no other beats in every one of the question's objectives, and their values."""
        points: list[tuple[Setting, dict[str, Any]]] = []
        for setting in self.settings:
            if np.isfinite(setting.best):
                front = setting.swept.front
                fits = front.device <= setting.bound.cluster.room
                seconds = front.seconds[fits]
                points.append((setting, {**setting.objectives(seconds), "memory": front.device[fits], "seconds": seconds}))
        if not points:
            return []
        names = self.question.pareto
        columns = {n: np.concatenate([values[n] for _, values in points]) for n in (*names, "seconds", "memory", "time", "cost", "rate")}
        owner = np.concatenate([np.full(values["seconds"].size, i) for i, (_, values) in enumerate(points)])
        front = np.flatnonzero(meets_limits(self.question, columns))
        front = front[undominated(np.stack([columns[n][front] for n in names], axis=1))] if front.size else front
        plans = []
        for i in np.unique(owner[front]):
            setting = points[int(i)][0]
            wanted = {(columns["seconds"][k], columns["memory"][k]): k for k in front[owner[front] == i]}
            for choice in to_choices(setting, pareto_plans(setting.swept)):
                k = wanted.get((choice.seconds, choice.device))
                if k is not None:
                    plans.append((choice, {n: float(columns[n][k]) for n in names}))
        return sorted(plans, key=lambda item: [item[1][n] for n in names])

    # --- their estimates

    def explained(self, choices: Sequence[Choice]) -> list[tuple[Estimate, int]]:
        """The estimate of each choice, and its row in it. Choices of one job share an estimate."""
        places: dict[int, tuple[Estimate, int]] = {}
        jobs: dict[Any, list[int]] = {}
        for i, choice in enumerate(choices):
            jobs.setdefault((id(choice.setting.bound), choice.setting.framework), []).append(i)
        for members in jobs.values():
            estimate = self._estimate_of([choices[i] for i in members])
            places |= {i: (estimate, row) for row, i in enumerate(members)}
        return [places[i] for i in range(len(choices))]

    def _estimate_of(self, choices: list[Choice]) -> Estimate:
        """The estimate of some choices of one job. Steps computed before, for another question of this search, are reused."""
        key = tuple((id(c.setting.swept), *c.values.values()) for c in choices)
        if key in self.cache:
            return self.cache[key].again(asked_of_choices(choices))
        self.cache[key] = estimate_of(choices, self.folders)
        return self.cache[key]


def undominated(points: Any) -> Any:
    """Indices of the rows of (n, objectives) that no other row beats: nowhere worse and somewhere better. Equals all stay."""
    order = np.lexsort(points.T[::-1])
    best: list[int] = []
    for i in order:
        ahead = points[best]
        if not best or not np.any(np.all(ahead <= points[i], axis=1) & np.any(ahead < points[i], axis=1)):
            best.append(int(i))
    return np.array(sorted(best), dtype=np.int64)


def best_of_each_kind(setting: Setting) -> list[Choice]:
    """The best plan of every kind in a setting: its framework, and the axes of the mesh it uses; of equals the simplest."""
    if setting.swept is None:
        return []
    if "kinds" not in setting.swept.memo:
        setting.swept.memo["kinds"] = _best_of_kinds(setting.swept)
    return to_choices(setting, setting.swept.memo["kinds"])


def _best_of_kinds(swept: Sweep) -> Plans:
    """The plans of the best score (``planner.evidence``) of each kind in a setting."""
    fastest = _fastest_of_kinds(swept)
    most = scores(swept.task, fastest)
    dearer = most > fastest.seconds
    if not dearer.any():  # no plan has a better score than a faster one
        return fastest
    limit = np.full(2 ** len(KIND_AXES), -np.inf)
    limit[kind_numbers(fastest.columns)[dearer]] = most[dearer]
    within = within_score(swept, limit[swept.kind])
    rows = np.flatnonzero(swept.settle(within) <= within)
    plans = [swept.open(rows[swept.kind[rows] == kind], limit[kind]) for kind in np.unique(swept.kind[rows])]
    every = sort_by_score(swept.task, join_plans([fastest.take(np.flatnonzero(~dearer)), *plans]))
    return every.take(np.sort(np.unique(kind_numbers(every.columns), return_index=True)[1]))


def _fastest_of_kinds(swept: Sweep) -> Plans:
    """The fastest plans of each kind in a setting."""
    key, best = swept.kind, np.array(swept.best[swept.room])
    seconds = swept.settle(best[key])
    np.minimum.at(best, key, seconds)
    rows = np.flatnonzero(np.isfinite(seconds) & (seconds == best[key]))
    plans = swept.open(rows)
    plans = sort_plans(plans.take(np.flatnonzero(plans.seconds == best[kind_numbers(plans.columns)])))
    return plans.take(np.sort(np.unique(kind_numbers(plans.columns), return_index=True)[1]))


def to_choices(setting: Setting, plans: Plans) -> list[Choice]:
    """Plans of a setting as a list of choices."""
    rows = ({name: column[i] for name, column in plans.columns.items()} for i in range(plans.seconds.size))
    task = setting.swept.task if setting.swept else setting.task()
    measured = evidence_scores(task, plans)
    columns = (plans.seconds, plans.device, measured / plans.seconds, scores(task, plans) / measured)
    return [Choice(setting, row, *(float(column[i]) for column in columns)) for i, row in enumerate(rows)]


def first_scores(setting: Setting) -> tuple[float, float]:
    """The score of the best plan of a setting, and what of it a published layout would not pay."""
    if "first" not in setting.swept.memo:
        (setting.swept.memo["first"],) = to_choices(setting, preferred_plans(setting.swept, 1))
    first = setting.swept.memo["first"]
    return first.score * first.unpublished, first.unpublished


def asked_of_choices(choices: Sequence[Choice]) -> Asked:
    """The question that evaluates some choices of one job."""
    setting = choices[0].setting
    rows = [row_of(setting.bound.asked.rows[0]._replace(gpus=choice.setting.gpus), choice.values) for choice in choices]
    columns: dict[str, Any] = {name: [getattr(row, name) for row in rows] for name in PLANNED}
    unused = [name for name in (*ENDS, "offload") if all(value in (None, frozenset()) for value in columns[name])]  # 0 layers is a value
    columns = {name: column if len(choices) > 1 else column[0] for name, column in columns.items() if name not in unused}
    return with_options(setting.bound.asked.replace(framework=setting.framework), columns)


def estimate_of(choices: Sequence[Choice], folders: tuple[str, ...]) -> Estimate:
    """The estimate of some choices of one job, in their order."""
    return answer_asked(asked_of_choices(choices), folders)


def search(
    model: Any = None,
    on: Any = None,
    *,
    catalog: Sequence[str] | str = (),
    where: str = "",
    progress: Progress | None = None,
    **options: Any,
) -> SearchResult:
    """Search the plans of a question: ``search("gpt-3-175b", on="a100-sxm-80gb", gpus=1024, global_batch_size=1536)``.

    Options are named as in ``ironlaw plan``, with underscores. Raises QuestionError for a wrong question. Where no plan meets the question,
    ``ranked()`` of the result is empty, and ``ironlaw.search.misses.misses`` lists the limits to change.
    """
    folders = load.given_folders(catalog)
    return run(read_question({"model": model, "on": on, **options}, where, folders), folders, progress)


def run(question: Question, folders: tuple[str, ...] = (), progress: Progress | None = None) -> SearchResult:
    """Sweep every setting of a question until its time limit or Ctrl-C, and return what was found so far.

    Ctrl-C before the first plan is timed stays a KeyboardInterrupt.
    """
    keep_pages()
    started, folders = time.monotonic(), load.with_constants(folders, question.asked.calibration_version)
    settings = settings_of(question, folders, picked=False)
    tried: list[Setting] = []
    done = {"plans": 0}

    def go_on(plans: int) -> bool:
        done["plans"] += plans
        return not done["plans"] or time.monotonic() - started < question.time_limit  # the first plans are always timed

    partial = False
    try:
        with watched(lambda one: progress(str(one)) if one else None) if progress else nullcontext():
            if is_sized(question):
                settings, tried = _sized_settings(settings, go_on)
            for at, first in enumerate(steps(list(settings), "settings") if len(settings) > 1 else settings):
                if first.swept is None:  # with the batch of an estimate, and the axes that its listed plans share
                    settings[at] = replace(first, planned=None, found=np.inf) if tried else on_count(first, first.gpus)
                if not settings[at].run(go_on):
                    partial = True
                    break
    except KeyboardInterrupt:
        if not done["plans"]:
            raise  # nothing was timed: there is no answer, not even "no"
        partial = True
    return SearchResult(question, settings, time.monotonic() - started, partial, folders, tried=tried)


def _sized_settings(settings: list[Setting], go_on: Callable[[int], bool]) -> tuple[list[Setting], list[Setting]]:
    """For every accelerator and variant the setting with the number of accelerators that answers, and the others that were timed."""
    alike: dict[Any, list[Setting]] = {}
    for setting in settings:
        alike.setdefault((setting.base.asked.on, *setting.variant.items()), []).append(setting)
    found = [sized(members[0], [setting.gpus for setting in members], go_on) for members in alike.values()]
    return [first for first, *_ in found], [setting for _, *others in found for setting in others]


def settings_of(question: Question, folders: tuple[str, ...], picked: bool = True) -> list[Setting]:
    """The settings of a question: every accelerator, variant and number of accelerators.

    ``picked``: with the batches of their estimates; else with the first of the batches to try, where the question gives none.
    """
    settings = []
    for bound, variant in bounds_of(question, folders):
        for gpus in counts_of(question, bound):
            batch = bound.asked.rows[0].global_batch_size
            first = batch_range(bound, bound.asked.rows[0]._replace(gpus=gpus)).to_try(gpus)[0] if batch is None else batch
            setting = Setting(question, with_row(bound, gpus, first), gpus, variant)
            settings.append(on_count(setting, gpus) if picked else setting)
    if not settings:
        raise QuestionError("--quota is below every number of --gpus: raise the quota, or give a smaller number")
    return settings


def unsearched_of(question: Question, setting: Setting | None) -> list[str]:
    """The options that the plans of a search leave as they are."""
    if setting is None:
        return []
    job = setting.base.job(setting.framework)
    return list(unsearched(question.space, job, setting.base.cluster, question.asked.given, {}))


def describe_space(question: Question, folders: tuple[str, ...] = ()) -> dict[str, Any]:
    """The axes of a question's space, their values, and the meshes and choices of every setting. Runs no estimate."""
    rows, settings = [], settings_of(question, folders, picked=False)
    for setting in settings:
        task = setting.task()
        rows.append({
            "accelerator": setting.on,
            **setting.variant,
            "gpus": setting.gpus,
            "rows": task.mesh.rows,
            "choices": prod(usable_choices(task, task.mesh.columns).shape) if task.mesh.rows else 0,
        })  # fmt: skip
    axes = {
        axis: {"values": [WORDS[axis, values]], "size": None} if isinstance(values, str) else {"values": list(values), "size": len(values)}
        for axis, values in question.space.values.items()
    }
    return {
        "title": question.space.title,
        "axes": axes,
        "not_searched": unsearched_of(question, settings[0] if settings else None),
        "forbidden": [f"{r.axis}{r.compare}{r.value}" for r in question.space.forbidden],
        "settings": rows,
        "rows": sum(r["rows"] for r in rows),
        "most_plans": sum(r["rows"] * r["choices"] for r in rows),
    }
