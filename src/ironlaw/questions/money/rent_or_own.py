"""The ways to pay for a run: rented on demand, reserved, on spot machines, or bought; and when a purchase has paid for itself."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any

from ironlaw import units
from ironlaw.catalog.sourced import Sourced
from ironlaw.estimate.bind.records import assume
from ironlaw.questions.answer import Column
from ironlaw.questions.asked_run import Work, asked, one
from ironlaw.questions.money.energy import Watts
from ironlaw.terms import Term, leaf, total

HOUR, MONTH = 3600.0, 365.25 / 12.0 * 86400.0
WAYS = (
    Column("way", "way"),
    Column("usd_per_hour", "USD/h", "USD"),
    Column("seconds", "time", "s"),
    Column("usd", "USD", "USD"),
    Column("note", "what it is"),
)
BREAK_EVEN = (
    Column("model", "model"),
    Column("runs", "runs", "1"),
    Column("months", "months", "1"),
    Column("utilisation", "least utilisation", "%"),
    Column("note", "what it counts"),
)


class Paid:
    """What is paid to others: on demand, reserved, spot, and what of it nothing came of."""

    def __init__(self, values: Mapping[str, Any], work: Work, folders: tuple[str, ...], held: float) -> None:
        from ironlaw.estimate.run import bind_price
        from ironlaw.law import cost

        self.values, self.work, self.held = values, work, held
        self.warnings: list[str] = []
        self.price = bind_price(values.get("price"), work.cluster, folders, [] if work.group else work.assumptions)
        self.reserved = self._bind("reserved_price", folders)
        self.spot = self._bind("spot_price", folders)
        self.rent = self._rent("cost on demand", held, self.price)
        self.terms: list[Term] = []
        self.lost = [("failures and checkpoints", work.wall - work.useful), ("idle", held - work.wall)]
        restart = values.get("restart_time") or work.cluster.systems.restart_time.value
        self.restart = leaf("cost of a restart", cost.rental, "USD", gpus=work.gpus, seconds=restart, price=self.price)

    def _bind(self, name: str, folders: tuple[str, ...]) -> Sourced | None:
        from ironlaw.estimate.run import bind_price

        if name not in self.values:
            return None
        notes: list[Any] = []
        found = bind_price(self.values[name], self.work.cluster, folders, notes)
        self.work.assumptions.extend({**note, "name": name} for note in notes)
        return found

    def _rent(self, name: str, seconds: float, per_second: Sourced) -> Term:
        from ironlaw.law import cost

        return leaf(name, cost.rental, "USD", gpus=self.work.gpus, seconds=seconds, price=per_second)

    def rows(self) -> Iterator[dict[str, Any]]:
        """The rented ways, and what of the rent was lost."""
        yield _way("on demand", self.price, self.held, self.rent, "paid while held")
        for name, seconds in self.lost:
            if seconds > 0:
                lost = self._rent(f"cost of {name}", seconds, self.price)
                self.terms.append(lost)
                yield _way(f"  of it {name}", self.price, seconds, lost, "held, and brought nothing on")
        self.terms.append(self.restart)
        yield _way(
            "  one restart",
            self.price,
            one(self.restart.inputs["seconds"]),
            self.restart,
            "of all accelerators, work done again not counted",
        )
        if self.reserved is not None:
            yield self._reserved(self.reserved)
        if self.spot is not None:
            yield self._spot(self.spot)

    def _reserved(self, rate: Sourced) -> dict[str, Any]:
        from ironlaw.law import ownership

        used = self.values.get("utilisation", 1.0)
        term = leaf(
            "cost reserved",
            ownership.owned_cost,
            "USD",
            gpus=self.work.gpus,
            seconds=self.held,
            standing=rate,
            running_rate=0.0,
            utilisation=used,
        )
        self.terms.append(term)
        return _way("reserved", rate, self.held, term, f"paid all the term, {used:.0%} of it used")

    def _spot(self, rate: Sourced) -> dict[str, Any]:
        """Longer by what interruptions cost: failures and interruptions stop the job alike."""
        from ironlaw.law import goodput

        if "spot_mttf" not in self.values or self.work.group is None:
            lack = "no --spot-mttf is given" if "spot_mttf" not in self.values else "--gpu-hours do not say what a stop costs: give MODEL"
            self.warnings.append(f"spot is counted without interruptions, which is a lower bound: {lack}")
            term = self._rent("cost on spot", self.held, rate)
            self.terms.append(term)
            return _way("spot", rate, self.held, term, "without interruptions: at least this")
        run = self.work.group.run
        assert run is not None
        fails = run.failures
        stops = leaf(
            "time between stops", goodput.either_mttf, "s", mttf=one(fails.mttf.value),
            interruption_mttf=one(goodput.cluster_mttf(self.values["spot_mttf"], self.work.gpus)),
        )  # fmt: skip
        written = one(fails.checkpoint_time.value)
        seconds = leaf(
            "time on spot", goodput.time_with_failures, "s", seconds=one(fails.seconds.inputs["seconds"]),
            checkpoint_interval=one(goodput.checkpoint_interval_daly(written, one(stops.value))),
            checkpoint_time=written, restart_time=fails.seconds.inputs["restart_time"], mttf=one(stops.value),
        )  # fmt: skip
        took = one(seconds.value) + self.held - self.work.wall
        term = self._rent("cost on spot", took, rate)
        self.terms += [stops, seconds, term]
        if math.isnan(took):
            self.warnings.append("on spot machines the job hardly gets on: it is stopped sooner than it restarts or writes a checkpoint")
        return _way("spot", rate, took, term, f"a stop every {units.show(one(stops.value), 's')}")


def _way(way: str, rate: Sourced | float, seconds: float, term: Term, note: str) -> dict[str, Any]:
    return {"way": way, "usd_per_hour": one(getattr(rate, "value", rate)) * HOUR, "seconds": seconds, "usd": one(term.value), "note": note}


class Owning:
    """Machines of one's own against rent: the simplified model by its name, the same with electricity, and in full."""

    def __init__(self, values: Mapping[str, Any], work: Work, watts: Watts, paid: Paid, folders: tuple[str, ...]) -> None:
        from ironlaw.catalog import load
        from ironlaw.law import ownership as law

        self.values, self.work, self.paid, self.law = values, work, paid, law
        self.terms: list[Term] = []
        self.warnings: list[str] = []
        record = load.record("ownership", "default", folders)
        self.life = self._given("life", record.life, "s")
        power_price = self._given("electricity_price", record.electricity_price, "USD/J")
        room_price = self._given("hosting_price", record.hosting_price, "USD/J")
        self.used = values.get("utilisation", 1.0)
        if "utilisation" not in values:
            assume(work.assumptions, "utilisation", "1", "default")
        limit = max(watts.rated, watts.drawn - watts.network) + watts.network
        self.hosting = leaf("hosting", law.hosting, "USD/s", power_limit=limit, hosting_price=room_price)
        self.staff = values.get("staff", 0.0)
        if "staff" not in values:
            self.warnings.append("staff and repairs of owned machines are left out: give --staff for each accelerator and year")
        self.running = leaf("electricity", law.electricity, "USD/s", power=watts.drawn, pue=watts.pue, electricity_price=power_price)
        self.rate, self.upkeep = one(paid.price.value), one(self.hosting.value) + self.staff
        self.saved = leaf("saving", law.saving, "USD/s", price=paid.price, running_rate=one(self.running.value), utilisation=self.used)
        self.most = leaf(
            "break-even purchase price",
            law.break_even_purchase,
            "USD",
            saved_rate=one(self.saved.value),
            standing=self.upkeep,
            life=self.life,
        )
        self.terms += [self.hosting, self.running, self.saved, self.most]
        self.bought = values.get("purchase_price")

    def _given(self, name: str, default: Sourced, unit: str) -> Sourced:
        if name in self.values:
            return asked(self.values[name], unit, f"{self.values[name]:g} {unit}")
        assume(self.work.assumptions, name, default.text, "default")
        return default

    def line(self) -> str:
        """The sentence of the headline."""
        most = one(self.most.value)
        if math.isnan(most):
            return "buying never pays: hosting, staff and electricity alone cost more than the rent saved"
        years = self.life.value / (12 * MONTH)
        return (
            f"buying pays below {most:,.0f} USD an accelerator, server and network in it, if it works {self.used:.0%} of {years:.3g} years"
        )

    def rows(self) -> Iterator[dict[str, Any]]:
        """The owned way to pay for this work."""
        if self.bought is None:
            return
        lost = leaf(
            "depreciation", self.law.depreciation, "USD/s", purchase=self.bought,
            residual=self.bought * self.values.get("residual", 0.0), life=self.life,
        )  # fmt: skip
        parts = [lost, self.hosting, *([leaf("staff", _same, "USD/s", standing=self.staff)] if self.staff else [])]
        self.standing = total("standing cost", parts)
        term = leaf(
            "cost if bought", self.law.owned_cost, "USD", gpus=self.work.gpus, seconds=self.paid.held,
            standing=one(self.standing.value), running_rate=one(self.running.value), utilisation=self.used,
        )  # fmt: skip
        self.terms += [self.standing, term]
        hourly = one(self.standing.value) / self.used + one(self.running.value)
        yield _way("bought", hourly, self.paid.held, term, f"depreciation, hosting, staff, electricity; works {self.used:.0%} of its life")

    def break_even(self) -> list[dict[str, Any]]:
        """Runs and months until the purchase is paid: simplified, with electricity, in full."""
        if self.bought is None:
            return []
        whole, rent = self.bought * self.work.gpus, one(self.paid.rent.value)
        running = one(self.running.value) * self.work.gpus * self.paid.held
        out = []
        for name, cost, note in (
            ("simplified", 0.0, "purchase over rent, back to back, nothing else: a lower bound"),
            ("with electricity", running, "the same less electricity"),
        ):
            term = leaf(f"break-even runs {name}", self.law.break_even_runs, "1", purchase=whole, rent=rent, running=cost)
            self.terms.append(term)
            runs = one(term.value)
            out.append({"model": name, "runs": runs, "months": runs * self.paid.held / MONTH, "utilisation": None, "note": note})
        time = leaf(
            "payback time", self.law.payback_time, "s", purchase=self.bought, saved_rate=one(self.saved.value), standing=self.upkeep
        )
        least = leaf(
            "break-even utilisation", self.law.break_even_utilisation, "1", standing=one(self.standing.value), price=self.paid.price,
            running_rate=one(self.running.value),
        )  # fmt: skip
        self.terms += [time, least]
        paid, share_of = one(time.value), one(least.value)
        if not share_of <= 1:
            self.warnings.append("bought accelerators cost more than rent even if they work all the time")
        out.append({
            "model": "in full", "runs": paid * self.used / self.paid.held, "months": paid / MONTH, "utilisation": share_of,
            "note": f"electricity, hosting, staff; works {self.used:.0%} of the time",
        })  # fmt: skip
        return out


def _same(standing: Any) -> Any:
    """Given: ``standing``."""
    return 1.0 * standing
