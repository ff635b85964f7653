"""The whole run from one step: days, accelerator-hours, money, energy, carbon; failure-free, and with failures beside it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ironlaw.catalog.sourced import Sourced
from ironlaw.cluster import Cluster
from ironlaw.estimate.bind.failures import FailureRates
from ironlaw.estimate.bind.question import Bound
from ironlaw.estimate.documents.columns import real_tokens
from ironlaw.frozen import Frozen
from ironlaw.job import Job
from ironlaw.law import cost, energy, run
from ironlaw.plan import Plan
from ironlaw.question.asked import Asked
from ironlaw.terms import Term, fold, leaf, total

if TYPE_CHECKING:
    from ironlaw.estimate.step.failures import Failures, Saved


class Run(Frozen):
    """The terms of a run, columns over the plans."""

    tokens: float
    seconds: Term
    gpu_hours: Term
    power: Term
    usd: Term
    joules: Term
    kg_co2e: Term
    failures: Failures
    usd_with_failures: Term
    joules_with_failures: Term
    kg_co2e_with_failures: Term

    def trees(self) -> list[Term]:
        """All terms, those without failures first."""
        free = [self.seconds, self.gpu_hours, self.power, self.usd, self.joules, self.kg_co2e]
        return [*free, *self.failures.trees(), self.usd_with_failures, self.joules_with_failures, self.kg_co2e_with_failures]


def power_of_one(cluster: Cluster) -> float:
    """Rated power of one accelerator with its share of the host, before PUE [W]."""
    return float(cluster.accelerator.tdp.value + cluster.node.host_power.value / cluster.node.accelerators.value)


def power_of(cluster: Cluster, gpus: Any, pue: Sourced, name: str = "power") -> Term:
    """Rated power of accelerators and their share of the hosts, times PUE."""
    host_power, sharing = cluster.node.host_power, cluster.node.accelerators
    host = Sourced(host_power.value / sharing.value, "W", f"{host_power.text} a node of {sharing.text}", host_power.source)
    return leaf(
        name, energy.cluster_power, "W", gpus=gpus, accelerator_power=cluster.accelerator.tdp,
        host_power_per_accelerator=host, pue=pue,
    )  # fmt: skip


def run_of(bound: Bound, job: Job, plan: Plan, step: Any, forward_share: Any) -> Run:
    """The run of every plan of a question with ``tokens``, of which padding is none. Power is rated power times PUE: an upper estimate."""
    from ironlaw.estimate.step.failures import failures_of, saved_by  # only a question with a run pays for the import

    asked, cluster, money, rates = bound.asked, bound.cluster, bound.money, bound.failure_rates
    assert asked.tokens is not None
    assert money is not None
    assert rates is not None
    per_step = plan.global_batch_size * real_tokens(job, plan)
    saved = saved_by(job)
    steps = leaf("steps", run.steps, "1", tokens=asked.tokens, tokens_per_step=per_step, rounding=run.UP)
    training = leaf("training", time_of_steps, "s", steps=steps.value, step=step)
    useful = [training, *_evaluations(asked, per_step, step, forward_share, steps.value)]
    seconds = total("seconds", [*useful, *_checkpoints(rates, plan, saved, steps.value)])
    # failures_of adds the checkpoints, so the useful time is without them
    failing = failures_of(rates, plan.gpus, fold(useful), steps.value, saved)
    power = power_of(cluster, plan.gpus, money.pue)
    joules = leaf("energy", energy.energy, "J", power=power.value, seconds=seconds.value)
    longer = leaf("energy with failures", energy.energy, "J", power=power.value, seconds=failing.seconds.value)
    return Run(
        tokens=asked.tokens,
        seconds=seconds,
        gpu_hours=leaf("gpu hours", cost.gpu_hours, "h", gpus=plan.gpus, seconds=seconds.value),
        power=power,
        usd=leaf("cost", cost.rental, "USD", gpus=plan.gpus, seconds=seconds.value, price=money.price),
        joules=joules,
        kg_co2e=leaf("carbon", energy.carbon, "kg", energy=joules.value, intensity=money.intensity),
        failures=failing,
        usd_with_failures=leaf("cost with failures", cost.rental, "USD", gpus=plan.gpus, seconds=failing.seconds.value, price=money.price),
        joules_with_failures=longer,
        kg_co2e_with_failures=leaf("carbon with failures", energy.carbon, "kg", energy=longer.value, intensity=money.intensity),
    )


def _evaluations(asked: Asked, tokens_per_step: Any, step: Any, forward_share: Any, steps: Any) -> list[Term]:
    """Evaluations of the run, where they were asked for."""
    if asked.evaluate_every is None:
        return []
    evaluated = tokens_per_step if asked.evaluation_tokens is None else asked.evaluation_tokens
    seconds = step * forward_share * (evaluated / tokens_per_step)
    return [leaf("evaluation", time_of_steps, "s", steps=np.floor(steps / asked.evaluate_every), step=seconds)]


def _checkpoints(rates: FailureRates, plan: Plan, saved: Saved, steps: Any) -> list[Term]:
    """Checkpoints of the failure-free run, where they were asked for."""
    if rates.checkpoint_every is None:
        return []
    from ironlaw.estimate.step.failures import checkpoint_size

    seconds = checkpoint_size(*saved) / rates.storage_bandwidth(plan.gpus)
    return [leaf("checkpoints", time_of_steps, "s", steps=np.floor(steps / rates.checkpoint_every), step=seconds)]


def time_of_steps(steps: Any, step: Any) -> Any:
    """Steps of the run times the time of one: ``steps step``."""
    return steps * step
