"""What a comparison finds, as objects: an accelerator, a row of the answer, and the rows of its tables and of JSON."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ironlaw.catalog.records import Price
from ironlaw.cautions.record import Caution
from ironlaw.cluster import Cluster
from ironlaw.errors import IronlawError
from ironlaw.estimate.what_if.near_counts import describe_counts
from ironlaw.estimate.what_if.offers import Offer, describe_offers, offers_data
from ironlaw.questions.compare.network import Network, Storage
from ironlaw.terms import Term


@dataclass(frozen=True)
class Prices:
    """Prices of an accelerator, of its bandwidth and of its arithmetic."""

    usd_per_gpu_hour: float
    usd_per_tbs_hour: float
    usd_per_pflops_hour: float
    machine_balance: float  # FLOP/B


@dataclass(frozen=True, eq=False, repr=False)
class Device:
    """The figures of an accelerator that prices and the three-roof model use."""

    name: str
    peak: Any
    bandwidth: Any
    nic: Any  # 0: none
    capacity: Any


@dataclass(frozen=True, eq=False)
class Hardware:
    """An accelerator of the comparison: its cluster, its figures and its prices."""

    name: str
    cluster: Cluster
    device: Device
    dense_peak: float
    price: Any  # sourced, USD/s; nan where none is known
    record: Price | None  # the price of the catalogue; None: given, or not known
    prices: Prices
    terms: tuple[Term, ...]
    assumptions: tuple[dict[str, Any], ...]
    warnings: tuple[Caution, ...]

    def row(self) -> dict[str, Any]:
        """The keys that no count changes."""
        of = self.record
        given = {"price_provider": "given", "price_term": "given"} if self.prices.usd_per_gpu_hour >= 0 else {"price_provider": "not known"}
        price = given if of is None else {
            "price_provider": of.provider, "price_region": of.region, "price_term": of.term, "price_date": of.date,
            "price_source": of.per_hour.source.title if of.per_hour.source else None,
        }  # fmt: skip
        return {"accelerator": self.name, **vars(self.prices), **price}


@dataclass(frozen=True)
class Refusal:
    """Why a row answers no: ``slow`` and ``dear`` rows break a limit of the question."""

    kind: str  # legal | fits | slow | dear
    text: str


@dataclass(frozen=True)
class Planned:
    """The plan of a row, as ``estimate`` chooses it, and its memory."""

    gpus: float
    memory_share: float
    memory_free: float
    fits_probability: float | None
    plan: str
    batch_tokens: float


@dataclass(frozen=True)
class Trained:
    """Rate, bound and cost of a plan that fits."""

    tokens_per_second: float
    tokens_per_second_low: float | None  # the error band; None where no published run supports one
    tokens_per_second_high: float | None
    mfu: float
    bound: str
    hbm_share: float
    network_share: float
    usd_per_hour: float
    usd_per_million_tokens: float
    cluster_hbm: float
    power: float  # of the facility, rated, with PUE [W]


@dataclass(frozen=True)
class RunCost:
    """A whole run, with its failures and checkpoints; ``days`` and ``usd`` are without, as ``estimate`` prints them."""

    days: float | None
    usd: float | None
    days_with_failures: float | None
    days_low: float | None
    days_high: float | None
    gpu_hours_with_failures: float | None
    usd_with_failures: float | None
    usd_low: float | None
    usd_high: float | None
    energy_with_failures: float | None  # J
    mwh_with_failures: float | None  # the same in MWh
    mwh_low: float | None
    mwh_high: float | None
    carbon_with_failures: float | None  # t CO2e
    carbon_low: float | None
    carbon_high: float | None


@dataclass(frozen=True, eq=False)
class Candidate:
    """One row of the comparison: an accelerator and a framework at a count; a part that was not asked for, or has no answer, is None."""

    hardware: Hardware
    label: str
    place: int  # of the count or the target in the question
    framework: str = ""  # where several are compared
    target: float | None = None
    refusals: tuple[Refusal, ...] = ()
    nearest: tuple[float, ...] = ()
    no_count: str = ""  # why no count works, where the count was open, or why there is no estimate
    error: IronlawError | None = None  # that the estimate raised
    count: float | None = None  # accelerators that were asked for, where there is no plan
    planned: Planned | None = None
    trained: Trained | None = None
    run: RunCost | None = None
    network: Network | None = None
    storage: Storage | None = None
    flags: tuple[dict[str, str], ...] = ()
    offers: tuple[Offer, ...] = ()  # what makes a plan fit, where none does
    most: float | None = None  # accelerators that the power limit feeds
    terms: tuple[Term, ...] = ()
    assumptions: tuple[dict[str, Any], ...] = ()
    warnings: tuple[Caution, ...] = ()
    above: str = ""  # its MFU and the highest that a published run measured, where it is above

    @property
    def answers(self) -> bool:
        """True where a plan fits and meets every limit."""
        return self.trained is not None and not self.refusals

    @property
    def legal(self) -> bool:
        """False where no plan is legal on the given count."""
        return not any(refusal.kind == "legal" for refusal in self.refusals)

    @property
    def why_not(self) -> str:
        """Why the row answers no, with the nearest counts that work."""
        refused = "; ".join(refusal.text for refusal in self.refusals)
        return self.no_count or refused + describe_offers(self.offers) + describe_counts(self.nearest)

    def row(self) -> dict[str, Any]:
        """The row of the tables and of JSON: the keys that have a value."""
        row = {**self.hardware.row(), "framework": self.framework or None, "target_tokens_per_second": self.target}
        row |= {"gpus": self.planned.gpus if self.planned else self.count, "fits": self.trained is not None, "answer": self.answers}
        for part in (self.planned, self.trained, self.run, self.network, self.storage):
            row |= {key: value for key, value in (vars(part) if part else {}).items() if key != "terms"}
        row |= {"why_not": self.why_not or None, "nearest_gpus": list(self.nearest) or None, "gpus_under_power_limit": self.most}
        row["offers"] = offers_data(self.offers) or None
        return {key: value for key, value in row.items() if value is not None}
