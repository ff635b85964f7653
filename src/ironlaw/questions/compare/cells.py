"""One cell of a comparison: an accelerator and a framework, at the asked count or at one that is looked for; its row of the answer."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ironlaw import units
from ironlaw.estimate.answer.as_data import bound_data, memory_data, run_data
from ironlaw.estimate.answer.as_data import warnings as row_warnings
from ironlaw.estimate.answer.bands import banded, widened
from ironlaw.estimate.answer.estimate import Estimate, answer
from ironlaw.estimate.answer.group import Group
from ironlaw.estimate.answer.term_data import number
from ironlaw.estimate.bind.failures import bind_failures
from ironlaw.estimate.bind.money import bind_pue
from ironlaw.estimate.evidence.support import ceiling_data
from ironlaw.estimate.legality.rules import broken
from ironlaw.estimate.step.failures import saved_by
from ironlaw.estimate.step.run import power_of, power_of_one
from ironlaw.estimate.what_if import sizing
from ironlaw.estimate.what_if.near_counts import nearest_counts
from ironlaw.estimate.what_if.offers import offers
from ironlaw.law import cost, energy
from ironlaw.question import defaults
from ironlaw.question.asked import asked_of
from ironlaw.questions.compare.candidates import Candidate, Hardware, Planned, Refusal, RunCost, Trained
from ironlaw.questions.compare.limits import Limits
from ironlaw.questions.compare.network import count_network, count_storage
from ironlaw.questions.compare.options import SWITCHES
from ironlaw.questions.plan_words import describe_plan
from ironlaw.terms import Term, leaf, plain, scalar, total

HOUR, MILLION = 3600.0, 1e6


@dataclass(eq=False)
class Outcome:
    """The estimate at one count, its power, and the limits that it breaks."""

    estimate: Estimate
    limits: Limits
    power: Term | None  # of the facility; None where no plan is legal
    refusals: tuple[Refusal, ...] = ()

    @property
    def group(self) -> Group:
        """The only row of the estimate."""
        return self.estimate.groups[0]

    @property
    def gpus(self) -> float:
        """Accelerators."""
        return float(self.group.plan.gpus[0])

    @property
    def rate(self) -> float:
        """Tokens per second of a plan that fits; 0 where none does."""
        return float(self.estimate.tokens_per_second[0]) if self.estimate.fits[0] else 0.0

    def breaks(self, *kinds: str) -> bool:
        """True where the row breaks a limit of one of some kinds, or has no plan that fits."""
        return any(refusal.kind in ("legal", "fits", *kinds) for refusal in self.refusals)


@dataclass(eq=False)
class Cell:
    """An accelerator and a framework under the limits of the question. Every count is estimated once."""

    hardware: Hardware
    options: Mapping[str, Any]  # of the estimate, without the count
    values: Mapping[str, Any]  # of the comparison
    limits: Limits
    folders: tuple[str, ...]
    framework: str = ""  # where several are compared
    outcomes: dict[float, Outcome] = field(default_factory=dict)

    def at(self, gpus: float) -> Outcome:
        """What a count gives."""
        if gpus not in self.outcomes:
            estimate = answer({**self.options, "gpus": gpus}, self.folders)
            self.outcomes[gpus] = self._judge(estimate)
        return self.outcomes[gpus]

    def _judge(self, estimate: Estimate) -> Outcome:
        """The outcome of an estimate: why it has no plan that fits, or the limits that it breaks."""
        group = estimate.groups[0]
        if not group.legal[0]:
            why = "; ".join(broken(group.job, group.plan, group.rules, 0))
            return Outcome(estimate, self.limits, None, (Refusal("legal", f"the count divides badly: {why}"),))
        power = self.power(float(group.plan.gpus[0]))
        if not group.memory.fits[0]:
            needs, has = scalar(group.memory.device), group.memory.capacity
            text = f"does not fit: the smallest plan needs {_gib(needs)} GiB, an accelerator has {_gib(has)} GiB"
            return Outcome(estimate, self.limits, power, (Refusal("fits", text),))
        seconds, usd = sizing.seconds_and_usd(group)
        rate = scalar(group.throughput["tokens_per_second"])
        return Outcome(estimate, self.limits, power, tuple(self.limits.broken(rate, seconds, usd, scalar(power))))

    @property
    def node(self) -> int:
        """Accelerators of a node, or a tray."""
        return int(self.hardware.cluster.node.accelerators.value)

    def power(self, gpus: float) -> Term:
        """Rated power of so many accelerators with their hosts, and of switches where they are counted, times PUE."""
        cluster, pue = self.hardware.cluster, bind_pue(self.values.get("pue"), self.hardware.cluster, [])
        machines = power_of(cluster, gpus, pue, "power of accelerators and hosts")
        asked = self.values.get("network_power")
        if asked is None:
            return machines
        count, each = gpus, asked
        if asked == SWITCHES:
            network, _ = count_network(cluster, gpus, self.values.get("oversubscription", 1.0))
            count, each = network.switches or 0.0, plain(cluster.fabric.switch_power or 0.0)
        switches = leaf(
            "power of the network", energy.cluster_power, "W", gpus=count, accelerator_power=each, host_power_per_accelerator=0.0, pue=pue
        )
        return total("power", [machines, switches])

    def round_counts(self, least: float = 1.0) -> list[float]:
        """Round counts from ``least`` on that the given axes divide."""
        given = math.prod(self.options.get(axis) or 1.0 for axis in ("tp", "pp", "cp", "dp_replicate", "dp_shard"))
        return sizing.round_counts(self.node, least, unit=given)

    def least(self, model: Any) -> float:
        """A count below which no plan meets the rate or the deadline, or holds the weights: from the peak and the memory."""
        target = self.limits.target or 0.0
        if self.limits.deadline is not None:
            target = max(target, self.options["tokens"] / self.limits.deadline)
        return sizing.least_count(model, self.hardware.cluster.accelerator, target, self._forward_only)

    @property
    def _forward_only(self) -> bool:
        """True where weights are frozen."""
        return "lora_rank" in self.options or "frozen_layers" in self.options

    def least_usd(self, model: Any) -> float:
        """What the run costs at the peak, which no plan beats; nan where no price is known."""
        seconds = sizing.least_seconds(model, self.hardware.cluster.accelerator, self._forward_only)
        return float(self.options["tokens"] * seconds * plain(self.hardware.price))

    def reached(self, gpus: float) -> float:
        """How many times a count reaches the rate and the deadline."""
        return sizing.times_reached(self.at(gpus).estimate, self.limits.deadline, self.limits.target)

    def within(self, *kinds: str) -> sizing.Score:
        """The score of a count: 1 where it has a plan and breaks no limit of these kinds."""
        return lambda gpus: float(not self.at(gpus).breaks(*kinds) and not sizing.is_above_limit(self.at(gpus).estimate))

    def find_count(self, model: Any) -> float | None:
        """The count where the question gives none; None where no count meets the limits.

        The fewest that meet the rate and the deadline; else the fastest that the budget pays for, or that the power feeds.
        """
        if self.limits.target is not None or self.limits.deadline is not None:
            return sizing.fewest_count(self.round_counts(self.least(model)), self.node, self.reached)
        if self.limits.budget is not None and not self.least_usd(model) <= self.limits.budget:
            return None
        if self.limits.budget is not None:
            sizing.most_count(self.round_counts(self.least(model)), self.node, self.within("slow", "dear"))
            return self.pick_fastest([gpus for gpus in self.outcomes if self.within("slow", "dear")(gpus)])
        below = self.list_below_power()
        for gpus in below:
            self.at(gpus)
        return self.pick_fastest([gpus for gpus in below if not self.at(gpus).refusals])

    def pick_fastest(self, counts: list[float]) -> float | None:
        """Of some counts that whose run takes least time, or that processes most tokens per second; the fewest of equals."""

        def slowness(gpus: float) -> float:
            seconds, _ = sizing.seconds_and_usd(self.at(gpus).group)
            return -self.at(gpus).rate if seconds is None else seconds

        return min(counts, key=lambda gpus: (slowness(gpus), gpus), default=None)

    def count_fed(self) -> float:
        """Accelerators that the power limit feeds."""
        assert self.limits.power is not None
        asked, pue = self.values.get("network_power"), bind_pue(self.values.get("pue"), self.hardware.cluster, []).value
        each = (power_of_one(self.hardware.cluster) + (asked if isinstance(asked, float) else 0.0)) * pue
        return math.floor(self.limits.power / each)

    def list_below_power(self) -> list[float]:
        """Counts just below the power limit, the largest first."""
        most, tried = self.count_fed(), self.round_counts()
        counts = sizing.counts_below(most, self.node, tried) if most >= self.node else [n for n in tried if n <= most]
        return [gpus for gpus in counts if gpus in self.outcomes or scalar(self.power(gpus)) <= self.limits.power]  # type: ignore[operator]

    def find_nearest(self, outcome: Outcome, model: Any) -> tuple[float, ...]:
        """The nearest counts that work for a row that answers no."""
        if not outcome.refusals:
            return ()
        if outcome.breaks():
            return nearest_counts(outcome.estimate)
        slow, dear = outcome.breaks("slow"), outcome.breaks("dear")
        if slow:
            found = sizing.fewest_count([n for n in self.round_counts(self.least(model)) if n > outcome.gpus], self.node, self.reached)
        else:
            below = [n for n in self.round_counts(self.least(model)) if n < outcome.gpus]
            if self.limits.power is not None and scalar(outcome.power) > self.limits.power:
                below = sorted({*(n for n in below if n <= self.count_fed()), *(n for n in self.list_below_power() if n < outcome.gpus)})
                found = next((n for n in reversed(below) if not self.at(n).refusals), None)
            else:
                found = sizing.most_count(below, self.node, self.within("slow", "dear"))
        return (found,) if found is not None and not (slow and dear) and not self.at(found).refusals else ()


def _gib(size: float) -> str:
    return f"{size / 2**30:,.1f}"


def candidate_of(cell: Cell, gpus: float | None, label: str, place: int, model: Any, target: float | None) -> Candidate:
    """The row of a cell at a count; None: no count meets the limits."""
    common: dict[str, Any] = {"hardware": cell.hardware, "label": label, "place": place, "framework": cell.framework, "target": target}
    if cell.limits.power is not None:
        common["most"] = cell.count_fed()
    if gpus is None:
        return Candidate(**common, no_count=_say_no_count(cell, label, model))
    outcome = cell.at(gpus)
    group = outcome.group
    chosen = tuple(item for item in group.assumptions if item["origin"] == "default")
    common |= {"refusals": outcome.refusals, "nearest": cell.find_nearest(outcome, model), "assumptions": chosen}
    if not outcome.estimate.legal[0]:
        return Candidate(**common, planned=_planned(outcome), warnings=tuple(group.warnings))
    if not outcome.estimate.fits[0]:
        return Candidate(**common, offers=offers(outcome.estimate), planned=_planned(outcome), warnings=tuple(group.warnings))
    trained, terms = _rate_training(cell, outcome, label)
    run, run_terms = _price_run(cell, outcome)
    network, network_terms = count_network(cell.hardware.cluster, gpus, cell.values.get("oversubscription", 1.0))
    rates = bind_failures(asked_of(cell.options), cell.hardware.cluster, [])
    storage = count_storage(saved_by(group.job), gpus, rates, cell.values.get("checkpoints_kept", defaults.CHECKPOINTS_KEPT))
    more = (*run_terms, *network_terms, *storage.terms)
    lines = row_warnings(group, 0, ceiling=False)
    return Candidate(
        **common, planned=_planned(outcome), trained=trained, run=run, network=network, storage=storage,
        terms=(*terms, *(term.named(f"{label} {term.name}") for term in more)), warnings=tuple(lines),
        above=_above_measured(group, label),
    )  # fmt: skip


def _above_measured(group: Group, label: str) -> str:
    """The MFU of a row beside the highest that a published run measured, where it is above; else nothing."""
    found = ceiling_data(group, 0)
    if found is None or not found["above"]:
        return ""
    return f"{label} {number(group.throughput['mfu'].value):.1%} ({found['mfu']:.1%} of {found['runs']})"


def _say_no_count(cell: Cell, label: str, model: Any) -> str:
    """Why no count works, with the cheapest or the fastest of those that were tried."""
    limits, most = cell.limits, f"{defaults.MOST_ACCELERATORS:,.0f}"
    tried = [outcome for outcome in cell.outcomes.values() if outcome.estimate.fits[0]]
    if limits.target is not None:
        return f"no plan of {label} on a round count up to {most} fits and reaches {limits.target:,.0f} tokens/s"
    if limits.deadline is not None:
        return f"no plan of {label} on a round count up to {most} fits and meets the deadline"
    if limits.budget is not None and not tried:
        least = cell.least_usd(model)
        return "over the budget: " + ("no price is known" if math.isnan(least) else f"at the peak the run costs {units.amount(least)} USD")
    if limits.budget is not None:
        costs = [(sizing.seconds_and_usd(outcome.group)[1] or math.nan, outcome.gpus) for outcome in tried]
        costs = [pair for pair in costs if not math.isnan(pair[0])]
        cheapest = f"; the cheapest run is {units.amount(min(costs)[0])} USD on {min(costs)[1]:,.0f}" if costs else ""
        return f"no round count of {label} is within the limits{cheapest}"
    return f"no plan fits on the {cell.count_fed():,} accelerators that the power limit feeds"


def _planned(outcome: Outcome) -> Planned:
    """The count, memory, plan and batch of an outcome."""
    group = outcome.group
    memory = memory_data(group, 0)
    device, capacity = float(outcome.estimate.device_bytes[0]), float(group.memory.capacity)
    return Planned(
        gpus=outcome.gpus,
        memory_share=device / capacity,
        memory_free=capacity - device,
        fits_probability=memory["fits_probability"] if group.legal[0] else None,
        plan=describe_plan(outcome.estimate),
        batch_tokens=float((group.plan.global_batch_size * group.plan.seq_len)[0]),
    )


def _rate_training(cell: Cell, outcome: Outcome, name: str) -> tuple[Trained, list[Term]]:
    """Rate, bound, power and cost of a plan that fits, with their Terms."""
    group, price = outcome.group, cell.hardware.price
    gpus, rate = outcome.gpus, float(outcome.estimate.tokens_per_second[0])
    shares = bound_data(group, 0, False)["shares"]
    width = widened(group, 0)
    low, high = banded(rate, *width)[:2] if width else (None, None)
    hourly = leaf(f"{name} rent of an hour", cost.rental, "USD", gpus=gpus, seconds=HOUR, price=price)
    token = leaf(f"{name} price of a token", cost.per_token, "USD/token", gpus=gpus, price=price, tokens_per_second=rate)
    assert outcome.power is not None
    trained = Trained(
        tokens_per_second=rate,
        tokens_per_second_low=low,
        tokens_per_second_high=high,
        mfu=float(outcome.estimate.mfu[0]),
        bound=bound_data(group, 0, False)["by"],
        hbm_share=shares["hbm"],
        network_share=shares["network"],
        usd_per_hour=float(hourly.value),
        usd_per_million_tokens=float(token.value) * MILLION,
        cluster_hbm=gpus * plain(group.cluster.accelerator.hbm_bandwidth),
        power=scalar(outcome.power),
    )
    rates = (group.throughput[key] for key in ("tokens_per_second", "mfu"))
    return trained, [token, hourly, outcome.power.named(f"{name} power"), *(term.named(f"{name} {term.name}") for term in rates)]


def _price_run(cell: Cell, outcome: Outcome) -> tuple[RunCost | None, list[Term]]:
    """Time, money, energy and carbon of the whole run, with their Terms."""
    group = outcome.group
    run, data = group.run, run_data(group, 0)
    if run is None or data is None:
        return None, []
    seconds, usd = sizing.seconds_and_usd(group)
    assert seconds is not None and usd is not None and outcome.power is not None
    failing = not math.isnan(scalar(run.failures.seconds))
    joules, carbon = (run.joules_with_failures, run.kg_co2e_with_failures) if failing else (run.joules, run.kg_co2e)
    if "network_power" in cell.values:
        joules = leaf("energy with failures", energy.energy, "J", power=scalar(outcome.power), seconds=seconds)
        carbon = leaf("carbon with failures", energy.carbon, "kg", energy=scalar(joules), intensity=carbon.inputs["intensity"])
    hours = leaf("gpu hours with failures", cost.gpu_hours, "h", gpus=outcome.gpus, seconds=seconds)
    width = widened(group, 0)
    mwh, tonnes = scalar(joules) / 3.6e9, scalar(carbon) / 1e3
    # rent, rated power and carbon are the time at a fixed rate: one error moves all of them
    bands = [banded(value, *width)[:2] if width else (None, None) for value in (seconds / 86400.0, usd, mwh, tonnes)]
    (days_low, days_high), (usd_low, usd_high), (mwh_low, mwh_high), (carbon_low, carbon_high) = bands
    cost_term = run.usd_with_failures if failing else run.usd
    return RunCost(
        days=data["days"],
        usd=data["usd"],
        days_with_failures=seconds / 86400.0,
        days_low=days_low,
        days_high=days_high,
        gpu_hours_with_failures=scalar(hours),
        usd_with_failures=number(cost_term.value),
        usd_low=usd_low,
        usd_high=usd_high,
        energy_with_failures=scalar(joules),
        mwh_with_failures=mwh,
        mwh_low=mwh_low,
        mwh_high=mwh_high,
        carbon_with_failures=tonnes,
        carbon_low=carbon_low,
        carbon_high=carbon_high,
    ), [*run.failures.trees()[:1], run.seconds, hours, cost_term, joules, carbon]  # fmt: skip
