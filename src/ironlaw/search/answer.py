"""The answer to a search: settings swept, then the plans that answer the question, explained by ``estimate``."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from math import prod
from typing import Any

import numpy as np

from ironlaw.errors import QuestionError
from ironlaw.estimate.answer import Estimate, answer_asked
from ironlaw.question.asked import Asked, with_options
from ironlaw.question.defaults import HEADROOM, OFFLOADS, OVERLAPS
from ironlaw.search.best import Plans, Sweep, front, in_order, keep_pages, merged, opened, top
from ironlaw.search.grid import choices_of
from ironlaw.search.mesh import COLUMNS
from ironlaw.search.question import Question, read_question
from ironlaw.search.setting import Setting, bounds_of, counts_of
from ironlaw.search.sizing import admits, narrowed
from ironlaw.search.space import ENDS, WORDS

# options that change what plans are worth, and not the plans
AGAIN = (
    "price", "grid", "pue", "tokens", "budget", "deadline", "target_tokens_per_second", "minimize", "pareto", "top", "failures", "mttf",
    "restart_time", "checkpoint_every", "checkpoint_bandwidth", "evaluate_every", "evaluation_tokens", "time_limit",
)  # fmt: skip
KIND_AXES = ("tp", "pp", "cp", "ep")
Progress = Callable[[str], None]


@dataclass(frozen=True, eq=False, repr=False)
class Choice:
    """One plan of a setting, as the options of an estimate."""

    setting: Setting
    framework: str
    values: dict[str, Any]
    seconds: float
    device: float

    @property
    def kind(self) -> tuple[Any, ...]:
        """Accelerator, variant, stack, and which axes of the mesh it uses: plans of one kind differ only in degree, or in how
        context ranks share a sequence.
        """
        used = (bool(self.values[axis] > 1.0) for axis in KIND_AXES)
        variant = (value for name, value in self.setting.variant.items() if name != "cp_method")
        return (self.setting.on, *variant, self.framework, *used)

    def same_as(self, other: Choice) -> bool:
        """True for the same plan of the same setting."""
        return self.setting is other.setting and self.framework == other.framework and self.values == other.values


@dataclass(eq=False, repr=False)
class Found:
    """What a search found. Ask again with ``again``: other money, time or tokens need no new search."""

    question: Question
    settings: list[Setting]
    seconds: float
    partial: bool
    folders: tuple[str, ...]
    cache: dict[Any, Estimate] = field(default_factory=dict)

    def again(self, **changed: Any) -> Found:
        """The same search under another price, budget, deadline, rate, tokens, goal or front; at once."""
        for name in changed:
            if name not in AGAIN:
                raise QuestionError(
                    f"--{name.replace('_', '-')} changes the plans themselves: search anew (again takes {', '.join(AGAIN)})"
                )
        asked = {**self.question.given, **changed}
        question = read_question({name: value for name, value in asked.items() if value is not None})
        binds = {(b.asked.on, tuple(v.items())): b for b, v in bounds_of(question, self.folders)}
        settings = [
            replace(s, question=question, bound=binds[s.bound.asked.on, tuple(s.variant.items())], sweeps=s.sweeps) for s in self.settings
        ]
        return Found(question, settings, self.seconds, self.partial, self.folders, self.cache)

    # --- how much was searched

    @property
    def space(self) -> dict[str, Any]:
        """Counts of the search: mesh rows, options a row, legal plans, plans by the rule that turned them away, plans timed."""
        sweeps = [s for setting in self.settings for s in setting.sweeps]
        rows, legal, fits = sum(s.timed for s in sweeps), sum(s.legal for s in sweeps), sum(s.fits for s in sweeps)
        turned: dict[str, int] = {}
        for setting in self.settings:
            for rule, count in setting.rejected.items():
                turned[rule] = turned.get(rule, 0) + count
        return {
            "rows": rows,
            "options": legal / rows if rows else 0.0,
            "legal": legal,
            "infeasible": {**turned, "fits": legal - fits},
            "timed": legal,
            "seconds": self.seconds,
            "partial": self.partial,
        }

    # --- which plans answer

    def goal(self, setting: Setting, seconds: Any) -> tuple[Any, ...]:
        """What to minimise, then what decides between equals: time, then accelerators."""
        worth = setting.worth(seconds)
        return (worth[self.question.minimize], worth["time"], worth["gpus"])

    def ranked(self) -> list[Setting]:
        """Settings whose best plan answers the question, best first."""
        kept = [s for s in self.settings if np.isfinite(s.best) and bool(admits(self.question, s.worth(s.best)))]
        return sorted(kept, key=lambda s: tuple(float(value) for value in self.goal(s, s.best)))

    def first(self, number: int) -> list[Choice]:
        """The first ``number`` plans, whatever their kind."""
        made: list[tuple[Any, ...]] = []
        for setting in self.ranked():
            choices = self._first_of(setting, number)
            goals = self.goal(setting, np.array([c.seconds for c in choices]))
            admitted = admits(self.question, setting.worth(np.array([c.seconds for c in choices])))
            made += [(*(float(g[i]) for g in goals), len(made) + i, c) for i, c in enumerate(choices) if admitted[i]]
        return [item[-1] for item in sorted(made, key=lambda item: item[:-1])[:number]]

    def _first_of(self, setting: Setting, number: int) -> list[Choice]:
        lists = [(s.task.job.framework.name, top(s, number)) for s in setting.sweeps if np.isfinite(s.seconds).any()]
        whole = merged([plans for _, plans in lists])
        names = np.concatenate([np.full(plans.seconds.size, name, dtype=object) for name, plans in lists])
        whole.columns["framework"] = names
        return choices_of_plans(setting, in_order(whole).take(slice(0, number)))

    def of_kinds(self, number: int) -> list[Choice]:
        """The best plan, and the next that differ in kind: other accelerators, or other axes of the mesh in use."""
        listed: list[tuple[Any, ...]] = []
        for setting in self.ranked():
            for choice in kinds_of(setting):
                if bool(admits(self.question, setting.worth(choice.seconds))):
                    goal = tuple(float(value) for value in self.goal(setting, choice.seconds))
                    listed.append((*goal, len(listed), choice))
        chosen: dict[Any, Choice] = {}
        for *_, choice in sorted(listed, key=lambda item: item[:4]):
            if len(chosen) < number:
                chosen.setdefault(choice.kind, choice)
        return list(chosen.values())

    def spacious(self, best: Choice) -> Choice | None:
        """The fastest plan of the best setting that leaves memory to spare, where the best does not."""
        limit = best.setting.capacity * (1.0 - HEADROOM)
        if best.device <= limit:
            return None
        found = [c for s in best.setting.sweeps for c in choices_of_plans(best.setting, front(s), s.task.job.framework.name)]
        return min((c for c in found if c.device <= limit), key=lambda c: c.seconds, default=None)

    def pareto(self) -> list[tuple[Choice, dict[str, float]]]:
        """The plans that no other beats in every one of the question's objectives, and their values."""
        points: list[tuple[Setting, Any, dict[str, Any]]] = []
        for setting in self.settings:
            for s in setting.sweeps:
                held = s.front.device <= setting.capacity
                if held.any():
                    seconds = s.front.seconds[held]
                    points.append((setting, s, {**setting.worth(seconds), "memory": s.front.device[held], "seconds": seconds}))
        if not points:
            return []
        names = self.question.pareto
        columns = {n: np.concatenate([p[2][n] for p in points]) for n in (*names, "seconds", "memory", "time", "cost", "rate")}
        owner = np.concatenate([np.full(p[2]["seconds"].size, i) for i, p in enumerate(points)])
        kept = np.flatnonzero(admits(self.question, columns))
        kept = kept[undominated(np.stack([columns[n][kept] for n in names], axis=1))] if kept.size else kept
        made = []
        for i in np.unique(owner[kept]):
            setting, swept, _ = points[int(i)]
            wanted = {(columns["seconds"][k], columns["memory"][k]): k for k in kept[owner[kept] == i]}
            for choice in choices_of_plans(setting, front(swept), swept.task.job.framework.name):
                k = wanted.get((choice.seconds, choice.device))
                if k is not None:
                    made.append((choice, {n: float(columns[n][k]) for n in names}))
        return sorted(made, key=lambda item: [item[1][n] for n in names])

    # --- what they are

    def explained(self, choices: Sequence[Choice]) -> list[tuple[Estimate, int]]:
        """The estimate of each choice, and its row in it. Choices of one job are one call."""
        places: dict[int, tuple[Estimate, int]] = {}
        jobs: dict[Any, list[int]] = {}
        for i, choice in enumerate(choices):
            jobs.setdefault((id(choice.setting.bound), choice.framework), []).append(i)
        for members in jobs.values():
            found = self._estimate_of([choices[i] for i in members])
            places |= {i: (found, at) for at, i in enumerate(members)}
        return [places[i] for i in range(len(choices))]

    def _estimate_of(self, choices: list[Choice]) -> Estimate:
        """The estimate of some choices of one job; steps that were computed for another question of this search stay."""
        key = tuple((id(c.setting.sweeps), c.framework, *c.values.values()) for c in choices)
        if key in self.cache:
            return self.cache[key].again(asked_of_choices(choices))
        self.cache[key] = estimate_of(choices, self.folders)
        return self.cache[key]


def undominated(points: Any) -> Any:
    """Indices of the rows of (n, objectives) that no other row beats: nowhere worse and somewhere better. Equals all stay."""
    order = np.lexsort(points.T[::-1])
    kept: list[int] = []
    for i in order:
        ahead = points[kept]
        if not kept or not np.any(np.all(ahead <= points[i], axis=1) & np.any(ahead < points[i], axis=1)):
            kept.append(int(i))
    return np.array(sorted(kept), dtype=np.int64)


def kinds_of(setting: Setting) -> list[Choice]:
    """The fastest plan of every kind a setting has: its stack, and which axes of the mesh it uses; of equals the simplest."""
    made = []
    for s in setting.sweeps:
        if "kinds" not in s.memo:
            s.memo["kinds"] = _fastest_of_kinds(s)
        made += choices_of_plans(setting, s.memo["kinds"], s.task.job.framework.name)
    return made


def _fastest_of_kinds(swept: Sweep) -> Plans:
    columns = swept.task.mesh.columns
    key = sum((columns[axis] > 1.0) * 2**i for i, axis in enumerate(KIND_AXES))
    best = np.full(2 ** len(KIND_AXES), np.inf)
    np.minimum.at(best, key, swept.seconds)
    rows = np.flatnonzero(np.isfinite(swept.seconds) & (swept.seconds == best[key]))
    plans = opened(swept.task, rows)
    key = sum((plans.columns[axis] > 1.0) * 2**i for i, axis in enumerate(KIND_AXES))
    plans = in_order(plans.take(np.flatnonzero(plans.seconds == best[key])))
    key = sum((plans.columns[axis] > 1.0) * 2**i for i, axis in enumerate(KIND_AXES))
    return plans.take(np.sort(np.unique(key, return_index=True)[1]))


def choices_of_plans(setting: Setting, plans: Plans, framework: str = "") -> list[Choice]:
    """Each plan of some columns as a Choice."""
    names = plans.columns.get("framework")
    made = []
    for i in range(plans.seconds.size):
        values = {name: column[i] for name, column in plans.columns.items() if name != "framework"}
        name = framework or str(names[i] if names is not None else "")
        made.append(Choice(setting, name, values, float(plans.seconds[i]), float(plans.device[i])))
    return made


def asked_of_choices(choices: Sequence[Choice]) -> Asked:
    """The question that evaluates some choices of one job."""
    asked = choices[0].setting.bound.asked
    rows = [c.values for c in choices]
    columns: dict[str, Any] = {name: [float(r[name]) for r in rows] for name in (*COLUMNS, "zero")}
    columns["sp"] = [bool(r["sp"]) for r in rows]
    columns["recompute"] = [str(r["recompute"]) for r in rows]
    columns["overlap"] = [frozenset(n for n in OVERLAPS if r[f"overlap_{n.replace('-', '_')}"]) for r in rows]
    columns["offload"] = [frozenset(n for n in OFFLOADS if r[f"offload_{n}"]) for r in rows]
    for axis in ENDS:
        if max(columns[axis]) < 0.0:
            del columns[axis]
    if not any(columns["offload"]):
        del columns["offload"]
    if len(choices) == 1:
        columns = {k: v[0] for k, v in columns.items()}
    return with_options(replace(asked, framework=choices[0].framework), columns)


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
) -> Found:
    """Search the plans of a question: ``search("gpt-3-175b", on="a100-sxm-80gb", gpus=1024, global_batch_size=1536)``.

    Options are those of ``ironlaw plan`` with underscores. Raises QuestionError for what cannot be answered; where no plan is
    feasible, ``ranked()`` of the answer is empty and ``search.misses`` says what stands in the way.
    """
    from ironlaw.catalog import load

    folders = load.given_folders(catalog)
    return run(read_question({"model": model, "on": on, **options}, where), folders, progress)


def run(question: Question, folders: tuple[str, ...] = (), progress: Progress | None = None) -> Found:
    """Sweep every setting of a question, as far as its time limit allows. Ctrl-C stops it too; what was found is kept."""
    keep_pages()
    started = time.monotonic()
    settings = settings_of(question, folders)
    done = {"plans": 0, "settings": 0}

    def go_on(plans: int, rows: int) -> bool:
        del rows
        done["plans"] += plans
        if progress is not None:
            progress(f"{done['plans']:,} plans, {done['settings']} of {len(settings)} settings")
        return not done["plans"] or time.monotonic() - started < question.time_limit  # something is always searched

    partial = False
    try:
        for setting in settings:
            if not setting.run(go_on):
                partial = True
                break
            done["settings"] += 1
        if not partial:
            settings += narrowed(question, settings, go_on)
    except KeyboardInterrupt:
        partial = True
    return Found(question, settings, time.monotonic() - started, partial, folders)


def settings_of(question: Question, folders: tuple[str, ...]) -> list[Setting]:
    """Every accelerator, variant and number of accelerators of a question."""
    made = [
        Setting(question, bound, gpus, variant) for bound, variant in bounds_of(question, folders) for gpus in counts_of(question, bound)
    ]
    if not made:
        raise QuestionError("--quota leaves none of the counts of --gpus")
    return made


def described(question: Question, folders: tuple[str, ...] = ()) -> dict[str, Any]:
    """The axes of a question's space, their values, and the meshes and choices of every setting; nothing is timed."""
    rows = []
    for setting in settings_of(question, folders):
        tasks = list(setting.tasks())
        rows.append({
            "accelerator": setting.on,
            **setting.variant,
            "gpus": setting.gpus,
            "rows": sum(t.mesh.rows for t in tasks),
            "choices": max((prod(choices_of(t, t.mesh.columns).shape) for t in tasks), default=0),
        })  # fmt: skip
    axes = {
        axis: {"values": [WORDS[axis, values]], "size": None} if isinstance(values, str) else {"values": list(values), "size": len(values)}
        for axis, values in question.space.values.items()
    }
    return {
        "title": question.space.title,
        "axes": axes,
        "forbidden": [f"{r.axis}{r.compare}{r.value}" for r in question.space.forbidden],
        "settings": rows,
        "rows": sum(r["rows"] for r in rows),
        "most_plans": sum(r["rows"] * r["choices"] for r in rows),
    }
