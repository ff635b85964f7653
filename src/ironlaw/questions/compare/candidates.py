"""What a comparison finds for one accelerator, as objects, and as the row of its JSON."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ironlaw.terms import Term


@dataclass(frozen=True)
class Prices:
    """Prices of an accelerator, of its bandwidth and of its arithmetic."""

    usd_per_gpu_hour: float
    usd_per_tbs_hour: float
    usd_per_pflops_hour: float
    machine_balance: float  # FLOP/B


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
class Planned:
    """The plan that ``estimate`` chooses."""

    gpus: float
    memory_share: float
    plan: str
    batch_tokens: float


@dataclass(frozen=True)
class Trained:
    """Rate, bound and cost of a plan that fits."""

    tokens_per_second: float
    mfu: float
    bound: str
    hbm_share: float
    network_share: float
    usd_per_hour: float
    usd_per_million_tokens: float
    cluster_hbm: float
    meets_target: bool


@dataclass(frozen=True)
class Candidate:
    """One accelerator of the comparison; a part that was not asked for, or has no answer, is None."""

    accelerator: str
    prices: Prices
    terms: tuple[Term, ...]
    first_order: FirstOrder | None = None
    real_ranks: RealRanks | None = None
    fits: bool | None = None  # None: no training is estimated
    legal: bool = True  # False: no plan is legal on the given count
    why_not: str = ""  # why there is no plan that fits, with the nearest counts that work
    planned: Planned | None = None
    trained: Trained | None = None
    assumptions: tuple[dict[str, Any], ...] = ()
    warnings: tuple[str, ...] = ()
    framework: str = ""  # where several are compared

    @property
    def label(self) -> str:
        """The accelerator, with the framework where several are compared."""
        return f"{self.accelerator} ({self.framework})" if self.framework else self.accelerator

    def row(self) -> dict[str, Any]:
        """The row of the tables and of JSON: the keys that have a value."""
        first = {f"first_order_{key}": value for key, value in _fields(self.first_order).items()}
        row = (
            {"accelerator": self.accelerator, "framework": self.framework or None} | _fields(self.prices) | _fields(self.real_ranks) | first
        )
        row |= {"gpus": self.planned.gpus if self.planned else None, "fits": self.fits} | _fields(self.planned) | _fields(self.trained)
        return {key: value for key, value in row.items() if value is not None}


def _fields(part: Any) -> dict[str, Any]:
    """The fields of a part; none of a part that is None."""
    return vars(part) if part else {}
