"""The three-roof model of one accelerator as Terms, corrected or as the cost-of-bandwidth note prints it; see ``law.three_roof``."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from ironlaw.law import states, traffic
from ironlaw.law import three_roof as law
from ironlaw.questions.compare.candidates import Device
from ironlaw.terms import Term, leaf, plain

BOUNDS = ("compute", "memory", "network")  # the first of equals binds


@dataclass(frozen=True, eq=False, repr=False)
class Knobs:
    """The knobs of the model, and what a token costs by them."""

    parameters: Any  # total: optimizer, gradients, memory
    active: Any  # parameters that a token visits: arithmetic
    layers: float
    width: float
    kappa: float
    gamma: float
    optimizer_traffic: float
    activation_passes: float
    tokens_per_step: float
    element: float
    gradient: float
    efficiency: float
    serial: bool
    each: tuple[float, float, float] | None = None  # shares of the compute, HBM and network roof, where they differ
    cache: float = 0.0  # inference: elements of keys and values a token reads; training: 0

    @property
    def trains(self) -> bool:
        """True unless the model is only run forward."""
        return not self.cache

    def flop(self) -> Term:
        """Operations of a token."""
        return leaf(
            "three-roof FLOP per token", law.flop_per_token, "FLOP/token", parameters=self.active, kappa=self.kappa, gamma=self.gamma
        )

    def moved(self) -> Term:
        """HBM bytes of a token."""
        name = "three-roof HBM bytes per token"
        if not self.trains:
            return leaf(name, traffic.elementwise, "B/token", elements=self.cache, bytes_per_element=self.element, passes=1.0)
        return leaf(
            name,
            law.traffic_per_token,
            "B/token",
            parameters=self.parameters,
            optimizer_traffic=self.optimizer_traffic,
            tokens_per_step=self.tokens_per_step,
            activation_passes=self.activation_passes,
            num_hidden_layers=self.layers,
            hidden_size=self.width,
            bytes_per_element=self.element,
        )

    def sent(self, device: str, network: Callable[..., Any], **ranks: float) -> Term:
        """Network bytes of a token by a law."""
        shared = {"parameters": self.parameters, "bytes_per_element": self.gradient, "tokens_per_step": self.tokens_per_step}
        return leaf(f"{device} network bytes per token", network, "B/token", **shared, **ranks)

    def activations(self) -> Any:
        """HBM bytes of a token that do not depend on the batch."""
        return traffic.elementwise(self.layers * self.width, self.element, self.activation_passes)


@dataclass(frozen=True, eq=False, repr=False)
class Roofs:
    """The answer for one device: Terms by name, the bound, and the count of accelerators, nan where no count reaches the target."""

    terms: dict[str, Term]
    bound: str
    gpus: float
    gpus_per_replica: float

    def __getitem__(self, name: str) -> Any:
        return plain(self.terms[name].value) if name in self.terms else math.nan


def replica(knobs: Knobs, device: Device) -> float:
    """The fewest accelerators whose memory holds one replica: weights, gradients and Adam's states; weights alone to run forward."""
    size = states.training_static(knobs.parameters) if knobs.trains else states.state(knobs.parameters, knobs.element, 1)
    return math.ceil(float(size) / float(plain(device.capacity)))


def printed(knobs: Knobs, device: Device, ranks: float, target: float | None, gpus: float | None) -> Roofs:
    """As the cost-of-bandwidth note prints it: a network term that ignores the number of ranks; memory is not checked."""
    terms = _compute_rates(knobs, device, knobs.sent(device.name, law.network_as_printed) if knobs.trains and ranks > 1 else None)
    rate = terms["rate"].value
    count = float(law.gpus_for(target, rate)) if target else gpus or ranks
    return Roofs(terms, _binding_roof(terms), count, 1.0)


def corrected(knobs: Knobs, device: Device, gpus_per_replica: float, target: float | None, gpus: float | None) -> Roofs:
    """With the bytes that each rank really sends for its tokens; there are as many ranks as the answer's accelerators have replicas.

    The fixed point has a closed form: arithmetic and HBM need a least count, and more replicas only lower the network's limit for the
    cluster, so either that least count reaches the target or no count does.
    """
    if target:
        without_network = _compute_rates(knobs, device, None)["rate"].value
        gpus = math.ceil(float(law.gpus_for(target, without_network)) / gpus_per_replica) * gpus_per_replica
    ranks = (gpus or gpus_per_replica) / gpus_per_replica
    terms = _compute_rates(knobs, device, knobs.sent(device.name, law.network_per_token, n=ranks) if knobs.trains and ranks > 1 else None)
    count = gpus or gpus_per_replica
    if target and count * terms["rate"].value < target * (1.0 - 1e-12):
        count = math.nan
    return Roofs(terms, _binding_roof(terms), count, gpus_per_replica)


def limits(knobs: Knobs, device: Device, gpus_per_replica: float, target: float | None, ranks: float) -> dict[str, Term]:
    """Where the bound changes: batches below which memory and network bind, and the highest rate of data parallelism."""
    terms: dict[str, Term] = {}
    if not knobs.trains:
        return terms
    efficiency = knobs.efficiency
    if knobs.each is not None:  # the reached rate of each resource replaces its roof
        compute, hbm, network = knobs.each
        rates = plain(device.peak) * compute, plain(device.bandwidth) * hbm, plain(device.nic) * network
        device, efficiency = Device(device.name, *rates, device.capacity), 1.0
    flop = knobs.flop().value
    ridge = flop * plain(device.bandwidth) / plain(device.peak)
    states_read = {"parameters": knobs.parameters, "optimizer_traffic": knobs.optimizer_traffic}
    roofs = {"ridge_traffic": ridge, "activation_traffic": knobs.activations()}
    terms["memory_batch"] = leaf(f"{device.name} batch below which memory binds", law.memory_crossover, "token", **states_read, **roofs)
    if plain(device.nic) > 0:
        shared = {"line_rate": device.nic, "parameters": knobs.parameters, "bytes_per_element": knobs.gradient}
        below = f"{device.name} batch below which the network binds"
        terms["network_batch"] = leaf(below, law.network_crossover, "token", **shared, n=ranks, peak=device.peak, flop_per_token=flop)
        shared |= {"gpus_per_replica": gpus_per_replica, "efficiency": efficiency}
        cap = f"{device.name} cap of data parallelism"
        terms["cap"] = leaf(cap, law.data_parallel_cap, "token/s", **shared, tokens_per_step=knobs.tokens_per_step)
        if target:
            batch = f"{device.name} batch whose cap is the target"
            terms["batch_for_target"] = leaf(batch, law.batch_for_rate, "token", **shared, tokens_per_second=target)
    return terms


def _compute_rates(knobs: Knobs, device: Device, sent: Term | None) -> dict[str, Term]:
    """The three roofs and the rate that they allow."""
    on = device.name
    flop, moved = knobs.flop(), knobs.moved()
    terms = {"flop": flop, "moved": moved}
    terms["compute"] = leaf(f"{on} compute roof", law.compute_roof, "token/s", peak=device.peak, flop_per_token=flop.value)
    terms["memory"] = leaf(f"{on} HBM roof", law.hbm_roof, "token/s", bandwidth=device.bandwidth, traffic_per_token=moved.value)
    network: Any = math.inf
    efficiency = knobs.efficiency
    if sent is not None and plain(device.nic) > 0:  # a device without a NIC sends nothing, as the note assumes
        terms["sent"] = sent
        terms["network"] = leaf(f"{on} network roof", law.network_roof, "token/s", line_rate=device.nic, network_per_token=sent.value)
        network = terms["network"].value
    if knobs.each is not None:
        for name, share in zip(BOUNDS, knobs.each, strict=True):
            if name in terms:
                terms[name] = leaf(f"{terms[name].name} reached", law.reached, "token/s", roof=terms[name].value, efficiency=share)
        network = terms["network"].value if "network" in terms else network
        efficiency = 1.0
    terms["rate"] = leaf(
        f"{on} three-roof rate of one",
        law.rate_serial if knobs.serial else law.rate,
        "token/s",
        compute_roof=terms["compute"].value,
        hbm_roof=terms["memory"].value,
        network_roof=network,
        efficiency=efficiency,
    )
    return terms


def _binding_roof(terms: dict[str, Term]) -> str:
    """The least of the roofs."""
    return min((name for name in BOUNDS if name in terms), key=lambda name: float(terms[name].value))
