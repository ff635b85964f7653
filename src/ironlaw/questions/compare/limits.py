"""The limits of a comparison: the rate, the deadline, the budget and the power that a row must keep to."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

from ironlaw import units
from ironlaw.questions.compare.candidates import Refusal

DAY = 86400.0


@dataclass(frozen=True)
class Limits:
    """What a row must keep to; None: no limit."""

    target: float | None = None  # tokens/s
    deadline: float | None = None  # s
    budget: float | None = None  # USD
    power: float | None = None  # W, of the facility

    @property
    def any(self) -> bool:
        """True where there is a limit."""
        return any(limit is not None for limit in vars(self).values())

    def broken(self, rate: float, seconds: float | None, usd: float | None, watts: float) -> Iterator[Refusal]:
        """The limits that a row breaks; ``seconds`` and ``usd`` are None where no run is asked for."""
        if self.target is not None and rate < self.target:
            yield Refusal("slow", f"too slow: {rate:,.0f} of {self.target:,.0f} tokens/s")
        if self.deadline is not None and seconds is not None and not seconds <= self.deadline:
            yield Refusal("slow", f"too slow: {units.show(seconds, 's', 4)}, the deadline is {units.show(self.deadline, 's', 4)}")
        if self.budget is not None and usd is not None and not usd <= self.budget:
            price = "no price is known" if math.isnan(usd) else f"{units.amount(usd)} of {units.amount(self.budget)} USD"
            yield Refusal("dear", f"over the budget: {price}")
        if self.power is not None and watts > self.power:
            yield Refusal("dear", f"over the power limit: {units.show(watts, 'W', 4)} of {units.show(self.power, 'W', 4)}")
