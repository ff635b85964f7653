"""The three-roof model of a comparison: its knobs from the options, its answer for one accelerator."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from ironlaw.catalog import load
from ironlaw.catalog.model import Model
from ironlaw.cautions.record import Caution
from ironlaw.cautions.table import caution
from ironlaw.errors import UnknownNameError, ValueRangeError
from ironlaw.estimate.layer.cached import cached_elements
from ironlaw.estimate.layer.counts import active_parameters, total_parameters
from ironlaw.law import cost, kernels, run, states, traffic
from ironlaw.law import three_roof as law
from ironlaw.law.flops import per_token
from ironlaw.question import defaults
from ironlaw.questions.compare.candidates import Device, Hardware
from ironlaw.questions.textbook import three_roof
from ironlaw.questions.textbook.three_roof import Knobs, Roofs
from ironlaw.terms import Term, leaf, plain

PRINTED_BATCH, PRINTED_ALPHA = 512e3, 16.0  # the defaults of the cost-of-bandwidth note; 16 is what Adam stores, not what it moves
HOUR, MILLION = 3600.0, 1e6
RESOURCES = ("compute", "hbm", "network")


@dataclass(frozen=True)
class RealRanks:
    """A printed answer with the network of real ranks: with the given ranks, and with as many as the answer needs."""

    network_at_given_ranks: float
    bound_at_given_ranks: str
    network_at_planned_ranks: float
    bound_at_planned_ranks: str


@dataclass(frozen=True)
class FirstOrder:
    """The answer of the three-roof model. Its keys in JSON start with ``first_order_``."""

    compute: float
    memory: float
    network: float
    rate: float
    bound: str
    gpus: float  # nan: no count reaches the target
    mfu: float
    gpus_per_replica: float
    tokens_per_second: float
    cluster_hbm: float
    usd_per_hour: float
    memory_batch: float | None = None  # None: inference, which has no batch of a step
    network_batch: float | None = None  # None, as the next two, without a network
    cap: float | None = None
    batch_for_target: float | None = None
    usd_per_million_tokens: float | None = None  # None: no count


@dataclass(frozen=True)
class Textbook:
    """An accelerator by the three-roof model, at a count or a target."""

    hardware: Hardware
    label: str
    first_order: FirstOrder
    real_ranks: RealRanks | None
    terms: tuple[Term, ...]
    warnings: tuple[Caution, ...]

    def row(self) -> dict[str, Any]:
        """The row of the tables and of JSON."""
        first = {f"first_order_{key}": value for key, value in vars(self.first_order).items()}
        row = {**self.hardware.row(), **(vars(self.real_ranks) if self.real_ranks else {}), **first}
        return {key: value for key, value in row.items() if value is not None}


def knobs_of(values: dict[str, Any], model: Model, folders: tuple[str, ...] = ()) -> Knobs:
    """The knobs of the three-roof model; to run a model forward: ``kappa`` 2, no optimizer, no recomputation."""
    training = values.get("task", "training") == "training"
    seq_len = values["seq_len"]
    as_printed = values.get("formulas") == "as-printed"
    default_batch = PRINTED_BATCH if as_printed else float(defaults.BATCH_TOKENS)
    batch = values.get("global_batch_tokens") or values.get("global_batch_size", 0.0) * seq_len or default_batch
    moved = PRINTED_ALPHA if as_printed else load.record("optimizers", values.get("optimizer", defaults.OPTIMIZER), folders).traffic.value
    utilization = _bind_utilization(values.get("utilization", {}))
    return Knobs(
        parameters=values.get("parameters", total_parameters(model)),
        active=values.get("parameters", active_parameters(model)),
        layers=float(model.num_hidden_layers),
        width=float(model.hidden_size),
        kappa=values.get("kappa", 6.0 if training else 2.0),
        gamma=values.get("gamma", 1.0),
        optimizer_traffic=values.get("alpha_opt", moved) if training else 0.0,
        activation_passes=values.get("c_act", 6.0),
        tokens_per_step=batch,
        element=2.0,
        gradient=values.get("gradient_bytes", 2.0),
        efficiency=utilization[-1],
        each=None if len(set(utilization)) == 1 else utilization,
        serial=values.get("roofs") == "serial",
        cache=0.0 if training else cached_elements(model, seq_len),
    )


def _bind_utilization(given: dict[str, float]) -> tuple[float, float, float]:
    """The share of the compute, HBM and network roof that is reached: one for all, or one each."""
    if unknown := [name for name in given if name not in ("", *RESOURCES)]:
        raise UnknownNameError("resource of --utilization", unknown[0], RESOURCES)
    common = given.get("", 0.75)
    return given.get("compute", common), given.get("hbm", common), given.get("network", common)


def check_replica(values: dict[str, Any], knobs: Knobs, device: Device) -> None:
    """Refuse a replica larger than the memory it is given."""
    needed, capacity = float(states.training_static(knobs.parameters)), plain(device.capacity)
    share = values.get("gpus_per_replica")
    if share and knobs.trains and share * capacity < needed:
        raise ValueRangeError(
            f"--gpus-per-replica {share:g} is too few: {share:g} x {device.name} have {share * capacity / 1e9:,.0f} GB; weights, gradients"
            f" and Adam's states need {needed / 1e9:,.0f} GB: give at least {math.ceil(needed / capacity)}"
        )


def answer_first_order(
    values: dict[str, Any], knobs: Knobs, device: Device, price: Any, dense_peak: float
) -> tuple[FirstOrder, RealRanks | None, list[Term], list[Caution]]:
    """The numbers of the three-roof model with their Terms and warnings; its MFU is of the dense peak, whatever ``--peak`` is given."""
    target, gpus = values.get("target_tokens_per_second"), values.get("gpus")
    share = values.get("gpus_per_replica") or three_roof.replica(knobs, device)
    warnings, real = [], None
    if values.get("formulas") == "as-printed":
        given = values.get("dp", 8.0)
        roofs = three_roof.printed(knobs, device, given, target, gpus)
        ranks = 2.0  # the printed term is correct for two ranks
        warnings.append(caution("three-roof-printed", accelerator=device.name, gigabytes=plain(device.capacity) / 1e9, replica=share))
        real = _with_real_ranks(knobs, device, roofs, given)
        share = 1.0
    else:
        roofs = three_roof.corrected(knobs, device, share, target, gpus)
        ranks = (roofs.gpus if math.isfinite(roofs.gpus) else share) / share
        if gpus and gpus < share:
            warnings.append(caution("three-roof-no-answer", accelerator=device.name, replica=share, gpus=gpus))
            roofs = Roofs(roofs.terms, roofs.bound, math.nan, share)
    limits = three_roof.limits(knobs, device, share, target, ranks)
    terms = [*roofs.terms.values(), *limits.values()]
    count, achieved = roofs.gpus, roofs.gpus * roofs["rate"]
    per_million = None
    if math.isfinite(count):
        name = f"{device.name} three-roof price of a token"
        token = leaf(name, cost.per_token, "USD/token", gpus=count, price=price, tokens_per_second=target or achieved)
        per_million = float(token.value) * MILLION
        terms.append(token)
    numbers = FirstOrder(
        compute=roofs["compute"],
        memory=roofs["memory"],
        network=roofs["network"],
        rate=roofs["rate"],
        bound=roofs.bound,
        gpus=count,
        mfu=float(run.mfu(float(per_token(knobs.active)) * roofs["rate"], 1.0, 1.0, dense_peak)),
        gpus_per_replica=roofs.gpus_per_replica,
        tokens_per_second=achieved,
        cluster_hbm=float(law.cluster_traffic(target or achieved, roofs["moved"])),
        usd_per_hour=count * plain(price) * HOUR,
        usd_per_million_tokens=per_million,
        **{key: float(term.value) for key, term in limits.items()},
    )
    return numbers, real, terms, warnings


def _with_real_ranks(knobs: Knobs, device: Device, printed: Roofs, ranks: float) -> RealRanks:
    """The network roof and the bound at the given ranks, and at the count that the printed answer asks for."""
    given, planned = (three_roof.corrected(knobs, device, 1.0, None, n) for n in (ranks, printed.gpus))
    return RealRanks(given["network"], given.bound, planned["network"], planned.bound)


def intensities(knobs: Knobs, values: dict[str, Any]) -> list[Term]:
    """FLOP per byte as the three-roof model counts; in training a second Term with the weights that the model leaves out.

    Every micro-batch reads all weights three times: forward, input gradient, weight gradient.
    """
    flop, moved = float(knobs.flop().value), float(knobs.moved().value)
    terms = [leaf("three-roof intensity", kernels.intensity, "FLOP/B", flop=flop, traffic=moved)]
    if knobs.trains:
        weights = float(traffic.elementwise(knobs.parameters, knobs.element, 3.0)) / micro_batch_tokens(values)
        terms.append(leaf("intensity with weights", kernels.intensity, "FLOP/B", flop=flop, traffic=moved + weights))
    return terms


def micro_batch_tokens(values: dict[str, Any]) -> float:
    """Tokens of a micro-batch."""
    return float(values.get("micro_batch_size", 1.0) * values["seq_len"])
