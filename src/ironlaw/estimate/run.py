"""The whole run from one step: days, accelerator-hours, money, energy, carbon; failure-free, and with failures beside it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from ironlaw.catalog import load
from ironlaw.catalog.records import Grid, Price, PriceList
from ironlaw.catalog.sourced import ASKED, Sourced
from ironlaw.cluster import Cluster
from ironlaw.errors import QuestionError, UnknownNameError
from ironlaw.estimate.bind.records import Assumptions, assume
from ironlaw.law import cost, energy, run
from ironlaw.plan import Plan
from ironlaw.question import defaults
from ironlaw.terms import Term, fold, leaf, total

if TYPE_CHECKING:
    from ironlaw.estimate.failures import Failures


@dataclass(frozen=True, eq=False, repr=False)
class Run:
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
        """All terms, the failure-free ones first."""
        free = [self.seconds, self.gpu_hours, self.power, self.usd, self.joules, self.kg_co2e]
        return [*free, *self.failures.trees(), self.usd_with_failures, self.joules_with_failures, self.kg_co2e_with_failures]


def bind_price(asked: Any, cluster: Cluster, folders: tuple[str, ...], assumptions: Assumptions) -> Sourced:
    """USD per second and accelerator: the number given, the provider/term named, or the newest on-demand price."""
    if isinstance(asked, (int, float)):
        return Sourced(asked / 3600.0, "USD/s", f"{asked} USD/h", ASKED)
    name = cluster.accelerator.name
    if name not in load.names("prices", folders):
        raise QuestionError(f"no price of {name} is known: give --price in USD per accelerator hour, or a record prices/{name}.toml")
    prices: PriceList = load.record("prices", name, folders)
    known = {f"{p.provider}/{p.term}": p for p in prices.price}  # later dates win
    if asked:
        wanted = load.fold_name(str(asked))
        found = {load.fold_name(k): p for k, p in known.items()} | {
            load.fold_name(p.provider): p for p in prices.price if p.term == "on-demand"
        }
        if wanted not in found:
            raise UnknownNameError(f"price of {name}", str(asked), known)
        price: Price = found[wanted]
    else:
        on_demand = [p for p in prices.price if p.term == "on-demand"] or list(prices.price)
        price = max(on_demand, key=lambda p: p.date)
    assume(
        assumptions,
        "price",
        f"{price.per_hour.text} ({price.provider}, {price.region}, {price.term}, {price.date})",
        "given" if asked else "default",
    )
    return price.per_hour


def price_if_known(asked: Any, cluster: Cluster, folders: tuple[str, ...], assumptions: Assumptions) -> Sourced:
    """As ``bind_price``; nan where nobody asked for a price and the catalogue has none, so that time and energy are answered."""
    name = cluster.accelerator.name
    if asked is None and name not in load.names("prices", folders):
        assume(assumptions, "price", f"none: the catalogue has no price of {name}", "default")
        return Sourced(np.nan, "USD/s", f"no price of {name} is known", ASKED)
    return bind_price(asked, cluster, folders, assumptions)


def bind_grid(asked: Any, folders: tuple[str, ...], assumptions: Assumptions) -> Sourced:
    """Carbon per energy: the number given, the region named, or the world average."""
    if isinstance(asked, (int, float)):
        return Sourced(asked / 3.6e9, "kg/J", f"{asked} g/kWh", ASKED)
    grid: Grid = load.record("grids", asked or defaults.GRID, folders)
    assume(assumptions, "grid", f"{grid.title}: {grid.intensity.text} ({grid.year})", "given" if asked else "default")
    return grid.intensity


def bind_pue(options: dict[str, Any], cluster: Cluster, assumptions: Assumptions) -> Sourced:
    """Power of the building over power of the machines: given, or the site default."""
    if "pue" in options:
        return Sourced(options["pue"], "1", str(options["pue"]), ASKED)
    assume(assumptions, "pue", cluster.systems.pue.text, "default")
    return cluster.systems.pue


def power_of(cluster: Cluster, gpus: Any, pue: Sourced, name: str = "power") -> Term:
    """Rated power of accelerators and their share of the hosts, times PUE."""
    whole, sharing = cluster.node.host_power, cluster.node.accelerators
    host = Sourced(whole.value / sharing.value, "W", f"{whole.text} a node of {sharing.text}", whole.source)
    return leaf(
        name, energy.cluster_power, "W", gpus=gpus, accelerator_power=cluster.accelerator.tdp,
        host_power_per_accelerator=host, pue=pue,
    )  # fmt: skip


def run_of(
    options: dict[str, Any],
    cluster: Cluster,
    plan: Plan,
    step: Any,
    forward_share: Any,
    parameters: Any,
    folders: tuple[str, ...],
    assumptions: Assumptions,
) -> Run:
    """The run of every plan. Power is the rated power of accelerators and host, times PUE: an upper estimate."""
    from ironlaw.estimate.failures import failures_of  # only a question with a run pays for the import

    tokens = options["tokens"]
    price = price_if_known(options.get("price"), cluster, folders, assumptions)
    intensity = bind_grid(options.get("grid"), folders, assumptions)
    pue = bind_pue(options, cluster, assumptions)
    per_step = plan.global_batch_size * plan.seq_len
    steps = leaf("steps", run.steps, "1", tokens=tokens, tokens_per_step=per_step)
    training = leaf("training", _product, "s", steps=steps.value, step=step)
    useful = [training, *_evaluations(options, plan, step, forward_share, steps.value)]
    seconds = total("seconds", [*useful, *_checkpoints(options, cluster, plan, parameters, steps.value)])
    # a checkpoint's time is part of what failures cost, so it is not in what they lengthen
    failing = failures_of(options, cluster, plan.gpus, fold(useful), steps.value, parameters, assumptions)
    power = power_of(cluster, plan.gpus, pue)
    joules = leaf("energy", energy.energy, "J", power=power.value, seconds=seconds.value)
    longer = leaf("energy with failures", energy.energy, "J", power=power.value, seconds=failing.seconds.value)
    return Run(
        tokens,
        seconds,
        leaf("gpu hours", cost.gpu_hours, "h", gpus=plan.gpus, seconds=seconds.value),
        power,
        leaf("cost", cost.rental, "USD", gpus=plan.gpus, seconds=seconds.value, price=price),
        joules,
        leaf("carbon", energy.carbon, "kg", energy=joules.value, intensity=intensity),
        failing,
        leaf("cost with failures", cost.rental, "USD", gpus=plan.gpus, seconds=failing.seconds.value, price=price),
        longer,
        leaf("carbon with failures", energy.carbon, "kg", energy=longer.value, intensity=intensity),
    )


def _evaluations(options: dict[str, Any], plan: Plan, step: Any, forward_share: Any, steps: Any) -> list[Term]:
    """Evaluations of the run, where they were asked for."""
    if "evaluate_every" not in options:
        return []
    evaluated = options.get("evaluation_tokens", plan.global_batch_size * plan.seq_len)
    one = step * forward_share * (evaluated / (plan.global_batch_size * plan.seq_len))
    return [leaf("evaluation", _product, "s", steps=np.floor(steps / options["evaluate_every"]), step=one)]


def _checkpoints(options: dict[str, Any], cluster: Cluster, plan: Plan, parameters: Any, steps: Any) -> list[Term]:
    """Checkpoints of the failure-free run, where they were asked for."""
    if "checkpoint_every" not in options:
        return []
    from ironlaw.estimate.failures import checkpoint_size, storage_bandwidth

    one = checkpoint_size(parameters) / storage_bandwidth(options, cluster, plan.gpus)
    return [leaf("checkpoints", _product, "s", steps=np.floor(steps / options["checkpoint_every"]), step=one)]


def _product(steps: Any, step: Any) -> Any:
    """Steps of the run times the time of one: ``steps step``."""
    return steps * step
