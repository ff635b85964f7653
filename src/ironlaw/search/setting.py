"""One accelerator, one number of them, one way to run them: the tasks it stands for, what they came to, and what that is worth."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import product
from typing import Any

import numpy as np

from ironlaw.catalog.sourced import Sourced
from ironlaw.errors import QuestionError, ValueRangeError
from ironlaw.estimate.answer import Bound, bind_question, sequences_of
from ironlaw.estimate.bind.records import assume
from ironlaw.estimate.layer.counts import total_parameters
from ironlaw.estimate.pipeline.schedules import one_chunk
from ironlaw.estimate.run import Run, bind_price, run_of
from ironlaw.question import defaults
from ironlaw.search.best import Sweep, sweep
from ironlaw.search.grid import Task
from ironlaw.search.mesh import Mesh, mesh_rows, plan_of
from ironlaw.search.question import Question
from ironlaw.search.space import VARIANTS, Space, context_ranks

FORWARD_SHARE = 1.0 / 3.0  # of a step, for what evaluations cost when plans are ranked; an answer has its plan's own


@dataclass(eq=False, repr=False)
class Setting:
    """Accelerators of one kind, as many as ``gpus``, run one way; swept once, then asked many times."""

    question: Question
    bound: Bound
    gpus: float
    variant: dict[str, Any]
    sweeps: list[Sweep] = field(default_factory=list)
    turned_away: dict[str, int] = field(default_factory=dict)  # mesh rows by the rule they break

    def __post_init__(self) -> None:
        """Refuse to rank by money where no price is known; other goals answer without."""
        if self.question.minimize == "cost" or self.question.budget is not None:
            bind_price(self.bound.given.get("price"), self.bound.cluster, self.bound.folders, [])

    @property
    def on(self) -> str:
        """The accelerator's name."""
        return self.bound.cluster.accelerator.name

    @property
    def best(self) -> float:
        """Step time of the fastest plan that fits; infinity where none does."""
        return min((float(s.seconds.min(initial=np.inf)) for s in self.sweeps), default=np.inf)

    @property
    def leanest(self) -> float:
        """Bytes of the legal plan that needs least; infinity where none is legal."""
        return min((float(s.device.min(initial=np.inf)) for s in self.sweeps), default=np.inf)

    def tasks(self) -> Iterator[Task]:
        """The job of every stack that may run the setting, with its legal mesh rows."""
        batch, length = self.bound.given["global_batch_size"], self.bound.given["seq_len"]
        for framework, flat in self._frameworks():
            job = self.bound.jobs(framework)
            mesh = mesh_rows(self.space, job, self.gpus, batch, length, flat)
            for rule, rows in mesh.turned_away.items():
                self.turned_away[rule] = self.turned_away.get(rule, 0) + rows
            if mesh.rows:
                yield Task(job, self.bound.cluster, Mesh(mesh.columns, {}), self.space, batch, length)

    def run(self, go_on: Callable[[int, int], bool]) -> bool:
        """Sweep every task; False where ``go_on`` stopped it."""
        for task in self.tasks():
            if not go_on(0, 0):
                return False
            swept = sweep(task, go_on)
            self.sweeps.append(swept)
            if swept.timed < task.mesh.rows:
                return False
        return True

    def _frameworks(self) -> list[tuple[str, bool | None]]:
        """(name, flat) of the stacks that run these plans: as for an estimate, one for tp = pp = 1 and one for the rest."""
        name = self.bound.given.get("framework") or self.bound.cluster.accelerator.usual_framework
        if name:
            return [(name, None)]
        return [("fsdp", True)] if self.gpus == 1 else [("fsdp", True), ("megatron", False)]

    def worth(self, seconds: Any) -> dict[str, Any]:
        """What plans of these step times come to: run time, cost, energy, carbon, rate; without tokens, those of one step."""
        times = np.asarray(seconds, dtype=np.float64) * self._level
        run, failing = self._run(times), self.question.failures and "tokens" in self.bound.given
        usd, joules, carbon, whole = run.usd, run.joules, run.kg_co2e, run.seconds
        if failing:
            usd, joules, carbon, whole = run.usd_with_failures, run.joules_with_failures, run.kg_co2e_with_failures, run.failures.seconds
        given = self.bound.given
        columns = {
            "time": whole.value,
            "cost": usd.value,
            "energy": joules.value,
            "carbon": carbon.value,
            "gpus": self.gpus,
            "rate": given["global_batch_size"] * given["seq_len"] / times,
        }
        return {name: np.broadcast_to(np.where(np.isnan(c), np.inf, c), times.shape) for name, c in columns.items()}

    def _run(self, seconds: Any) -> Run:
        """The run of plans of these step times."""
        given, cluster = dict(self.bound.given), self.bound.cluster
        given.setdefault("tokens", given["global_batch_size"] * given["seq_len"])
        one = np.ones_like(seconds)
        plan = plan_of(dict.fromkeys(("tp", "pp", "vpp", "cp", "ep", "etp", "dp_replicate", "dp_shard", "micro_batch_size"), one)
                       | {"gpus": self.gpus * one}, given["global_batch_size"], given["seq_len"])  # fmt: skip
        with np.errstate(all="ignore"):
            return run_of(given, cluster, plan, seconds, FORWARD_SHARE * one, total_parameters(self.bound.model), self.bound.folders, [])

    @cached_property
    def _level(self) -> float:
        """What the user's own runs say of the level of step times; 1 where the question has none."""
        if "correction" not in self.bound.given:
            return 1.0
        from ironlaw.estimate.correction import read_correction

        return float(read_correction(self.bound.given["correction"]).factor)

    @cached_property
    def space(self) -> Space:
        """The question's space, less what this job or accelerator cannot do."""
        space, given = self.question.space, self.bound.given
        values = dict(space.values)
        hows = values.get("recompute")
        if hows:
            possible = [how for how in hows if not how.startswith("every:") or int(how[6:]) <= self.bound.model.num_hidden_layers]
            if not possible:
                raise ValueRangeError(f"--recompute {hows[0]}: {self.bound.model.name} has {self.bound.model.num_hidden_layers} layers")
            values["recompute"] = tuple(possible)
        if values.get("cp") == "by length":
            values["cp"] = context_ranks(given["seq_len"], self.gpus)
        if self.variant.get("cp_method", methods_of(self.question)[0]) != methods_of(self.question)[0]:
            # one rank shares nothing: its plans are the same under every method, and stand under the first
            values["cp"] = tuple(ranks for ranks in values.get("cp", ()) if ranks > 1.0)
        schedule = given.get("schedule")
        if "vpp" in values and one_chunk(schedule):
            if 1.0 not in values["vpp"]:
                raise QuestionError(f"--schedule {schedule} has one chunk per rank, vpp is held at {values['vpp'][0]:g}: use interleaved")
            values["vpp"] = (1.0,)
        return replace(space, values=values)

    @cached_property
    def capacity(self) -> float:
        """Bytes a job may use of one accelerator."""
        device = self.bound.cluster.accelerator
        return float((device.memory_usable or device.memory_capacity).value)

    @property
    def node(self) -> float:
        """Accelerators of a node."""
        return float(_plain(self.bound.cluster.node.accelerators))


def _plain(value: Any) -> Any:
    return value.value if isinstance(value, Sourced) else value


def methods_of(question: Question) -> tuple[str, ...]:
    """The methods of context parallelism to try; an estimate's own where the question holds cp at 1, or no sequence is long."""
    methods = question.space.of("cp_method")
    if methods != "by length":
        return methods or ("ring",)
    many = question.space.of("cp") not in (None, (1.0,)) and question.options.get("seq_len", 0.0) >= defaults.LONG_SEQUENCE
    return defaults.CP_METHODS if many else defaults.CP_METHODS[:1]


def bounds_of(question: Question, folders: tuple[str, ...]) -> Iterator[tuple[Bound, dict[str, Any]]]:
    """The records of every accelerator and variant of a question, with the batch and sequence all of them share."""
    varied = {axis: question.space.of(axis) for axis in VARIANTS if question.space.of(axis)}
    if varied.get("cp_method") == "by length":
        varied["cp_method"] = methods_of(question)
        if len(varied["cp_method"]) == 1:
            del varied["cp_method"]
    for on in question.on:
        for values in product(*varied.values()):
            variant = dict(zip(varied, values, strict=True))
            asked = {**question.options, **variant, "on": on}
            if isinstance(question.options.get("price"), dict):
                asked["price"] = question.options["price"].get(on)
            bound = bind_question({k: v for k, v in asked.items() if v is not None}, folders)
            yield with_batch(bound), {axis: value for axis, value in variant.items() if len(varied[axis]) > 1}


def with_batch(bound: Bound) -> Bound:
    """A bound question whose sequence length and batch are known: given, or the defaults of an estimate."""
    given, notes = dict(bound.given), list(bound.assumptions)
    if "seq_len" not in given:
        given["seq_len"] = defaults.seq_len(bound.model.max_position_embeddings)
        assume(notes, "seq_len", given["seq_len"], "default")
    if "global_batch_tokens" in given:
        given["global_batch_size"] = sequences_of(given["global_batch_tokens"], given["seq_len"])
    if "global_batch_size" not in given:
        given["global_batch_size"] = defaults.batch(1.0, given["seq_len"])
        assume(notes, "global_batch_size", given["global_batch_size"], "default")
    return replace(bound, given=given, assumptions=notes)


def counts_of(question: Question, bound: Bound) -> list[float]:
    """How many accelerators to try: those listed; of a range four an octave, in whole nodes from one node up."""
    most = (question.quota or {}).get(bound.given["on"], np.inf)
    if question.gpus[-1] != "range":
        return [n for n in question.gpus if n <= most]
    low, high = question.gpus[0], min(question.gpus[1], most)
    node = float(_plain(bound.cluster.node.accelerators))
    made = {low, high}
    octave = 1.0
    while octave <= high:
        for step in (1.0, 1.25, 1.5, 1.75):
            made.add(np.floor(octave * step) if octave * step < node else np.floor(octave * step / node) * node)
        octave *= 2.0
    whole = {n if n <= node else np.floor(n / node) * node for n in made}
    return sorted(float(n) for n in whole | {high} if low <= n <= high)
