"""The plan that techniques are tried on: held by its options, with its price, power and input pipeline."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ironlaw.errors import IronlawError
from ironlaw.estimate.answer.estimate import Estimate, answer
from ironlaw.estimate.answer.group import Group
from ironlaw.estimate.answer.reproduce import asked_data
from ironlaw.estimate.bind.money import Money
from ironlaw.estimate.legality.rules import broken
from ironlaw.estimate.step.run import power_of
from ironlaw.law import cost, dataloading, energy
from ironlaw.question.read import read_options
from ironlaw.questions.data.input_stages import InputPipeline, Step, bind_pipeline
from ironlaw.terms import scalar

TOKENS = 1e6  # money, energy and carbon are of so many tokens
_OF_THE_RUN = (
    "tokens", "evaluate_every", "evaluation_tokens", "checkpoint_every", "checkpoint_bandwidth", "mttf", "restart_time", "price", "grid",
    "pue", "space", "global_batch_tokens", "margin",
)  # fmt: skip


@dataclass(frozen=True, eq=False, repr=False)
class Setting:
    """A plan, the options that hold it, and what turns its time into money, energy and carbon."""

    group: Group
    given: Mapping[str, Any]  # options of an estimate that the user gave
    held: Mapping[str, Any]  # options that ask for exactly this plan
    loader: Mapping[str, Any]  # options of the input pipeline; empty where the question has none
    money: Money
    folders: tuple[str, ...]

    def option(self, name: str, default: Any = None) -> Any:
        """The value of an option of the held plan."""
        return self.held.get(name, default)


@dataclass(frozen=True, eq=False, repr=False)
class Measure:
    """A plan in numbers: the step with its wait for data, memory, and what a million tokens cost."""

    group: Group
    waiting: float  # of the step, for data [s]
    seconds: float  # of a step
    tokens_per_second: float
    device: float  # of the fullest accelerator [B]
    capacity: float  # of an accelerator [B]
    fits: bool
    shares: Mapping[str, float]  # of the step, by roof
    usd: float | None
    joules: float
    kg_co2e: float


def hold_plan(group: Group, values: Mapping[str, Any], loader: Mapping[str, Any], money: Money, folders: tuple[str, ...]) -> Setting:
    """The setting of the plan of one estimate.

    Of the memory, as much is kept free as the plan keeps, at most what makes it likely that a plan fits.
    """
    asked = asked_data(group, 0)
    given = {name: value for name, value in values.items() if name not in _OF_THE_RUN}
    named = {**asked["given"], **asked["plan"]}
    held = read_options({name: value for name, value in named.items() if name not in _OF_THE_RUN})
    free = 1.0 - scalar(group.memory.device) / group.memory.capacity
    margin = values.get("margin", group.margin)
    held["margin"] = max(min(margin, free * (1.0 - 1e-9)), 0.0) if group.memory.fits[0] else margin
    return Setting(group, given, held, loader, money, folders)


def bind_loader(setting: Setting, group: Group, notes: list[Any]) -> InputPipeline:
    """The input pipeline that the question describes, for one accelerator of a plan."""
    gpus = scalar(group.plan.gpus)
    device, node = group.cluster.accelerator, group.cluster.node
    step = Step(
        title="", seconds=scalar(group.step.tree), samples=scalar(group.plan.global_batch_size) / gpus, seq_len=scalar(group.plan.seq_len),
        gpus=gpus, per_node=setting.loader.get("accelerators_per_node", min(node.accelerators.value, gpus)),
        link=setting.loader.get("transfer_rate", device.c2c_bandwidth or device.pcie_bandwidth), group=group,
    )  # fmt: skip
    return bind_pipeline(setting.loader, step, notes)


def order_of(loader: Mapping[str, Any]) -> str:
    """Whether batches are prepared beside the step: as given, else overlapped unless nothing is prefetched."""
    order: str = loader.get("stages", "overlapped" if loader.get("prefetch_factor", 1.0) else "serial")
    return order


def _wait_for_data(setting: Setting, group: Group, loader: Mapping[str, Any]) -> float:
    """Seconds of a step in which accelerators wait for their batch; 0 without a description of the input pipeline."""
    if not loader:
        return 0.0
    pipeline = bind_loader(Setting(group, setting.given, setting.held, loader, setting.money, setting.folders), group, [])
    overlapped = float(order_of(loader) == "overlapped")
    process = pipeline.process_time(pipeline.workers)
    time = dataloading.supply_time(scalar(pipeline.fetch), process, scalar(pipeline.transfer), overlapped)
    return float(dataloading.waiting(time, pipeline.step.seconds, overlapped))


def measure(setting: Setting, group: Group, loader: Mapping[str, Any] | None = None) -> Measure:
    """The numbers of a plan; a loader that a technique changes is given."""
    waiting = _wait_for_data(setting, group, setting.loader if loader is None else loader)
    alone, gpus = scalar(group.step.tree), scalar(group.plan.gpus)
    seconds = alone + waiting
    tokens = scalar(group.plan.global_batch_size) * scalar(group.plan.seq_len)
    time = seconds / tokens * TOKENS
    money = setting.money
    power = scalar(power_of(group.cluster, gpus, money.pue))
    joules = scalar(energy.energy(power, time))
    price = money.price.value
    shares = {name: scalar(share) * alone / seconds for name, share in group.shares.items()}
    shares["data"] = shares.get("data", 0.0) + waiting / seconds
    return Measure(
        group=group, waiting=waiting, seconds=seconds, tokens_per_second=tokens / seconds, device=scalar(group.memory.device),
        capacity=group.memory.capacity, fits=bool(group.memory.fits[0]), shares=shares,
        usd=scalar(cost.rental(gpus, time, price)) if not math.isnan(price) else None,
        joules=joules, kg_co2e=scalar(energy.carbon(joules, money.intensity.value)),
    )  # fmt: skip


class Refused(str):
    """Why there is no estimate, in words; ``option``: the option at fault, None where it is none or not known."""

    option: str | None = None

    @classmethod
    def by(cls, error: IronlawError) -> Refused:
        """The words of an error and its option."""
        made = cls(error)
        made.option = error.option
        return made


def estimate_of(options: Mapping[str, Any], folders: tuple[str, ...]) -> Estimate | str:
    """The estimate of options, or in words why there is none."""
    try:
        estimate = answer(options, folders)
    except IronlawError as error:
        return Refused.by(error)
    group, at = estimate.place_of(0)
    return estimate if group.legal[at] else "; ".join(broken(group.job, group.plan, group.rules, at))
