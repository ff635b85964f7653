"""What a run costs and emits at every site: rent, electricity, traffic, power, energy and carbon."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from ironlaw.estimate.step.run import power_of
from ironlaw.law import cost, energy, wide_area
from ironlaw.questions.answer import Column, Table, filled_columns
from ironlaw.questions.sites.bind import Site
from ironlaw.terms import Term, leaf, scalar, total

SITES = (
    Column("site", "site"), Column("on", "accelerator"), Column("gpus", "accelerators", "1"), Column("pue", "PUE", "1"),
    Column("power", "power (rated)", "W"), Column("limit", "available", "W"), Column("energy", "energy", "J"),
    Column("intensity", "g CO2e/kWh", "1"), Column("carbon", "CO2e", "kg"),
)  # fmt: skip
COSTS = (
    Column("site", "site"), Column("price", "USD/h", "1"), Column("rent", "rent", "USD"), Column("electricity_price", "USD/kWh", "1"),
    Column("electricity", "electricity", "USD"), Column("sent", "sent", "decimal B"), Column("traffic", "traffic", "USD"),
    Column("usd", "total", "USD"),
)  # fmt: skip


@dataclass(frozen=True, eq=False)
class SiteAccount:
    """Cost, power and carbon of one site over a run."""

    site: Site
    rent: Term
    power: Term
    energy: Term
    carbon: Term
    electricity: Term | None  # None: its price is unknown
    sent: float  # bytes over the run
    traffic: Term | None  # None: traffic is not priced

    @property
    def parts(self) -> list[Term]:
        """The parts of the cost."""
        paid = self.electricity if self.site.electricity_paid else None
        return [part for part in (self.rent, paid, self.traffic) if part is not None]

    @property
    def is_short(self) -> bool:
        """True where the site has less power than its accelerators need."""
        return self.site.limit is not None and scalar(self.power) > self.site.limit


@dataclass(frozen=True, eq=False)
class Accounts:
    """Cost, power and carbon of all sites, with their sums."""

    sites: tuple[SiteAccount, ...]

    @property
    def short(self) -> list[SiteAccount]:
        """Sites with less power than their accelerators need."""
        return [account for account in self.sites if account.is_short]

    def add(self, name: str, read: Callable[[SiteAccount], Term]) -> Term:
        """The sum over all sites of one term of each."""
        return total(name, [read(account) for account in self.sites])

    @property
    def usd(self) -> Term:
        """The cost of the run."""
        return total("cost", [part for account in self.sites for part in account.parts])

    @property
    def electricity_in_price(self) -> list[Term]:
        """Electricity at the recorded price of sites whose rent includes it."""
        return [a.electricity for a in self.sites if a.electricity is not None and not a.site.electricity_paid]

    @property
    def power(self) -> Term:
        """Rated power of all sites."""
        return self.add("power", lambda account: account.power)

    @property
    def energy(self) -> Term:
        """Energy of all sites."""
        return self.add("energy", lambda account: account.energy)

    @property
    def carbon(self) -> Term:
        """Carbon of all sites, each on its own grid."""
        return self.add("carbon", lambda account: account.carbon)


def count_accounts(sites: Sequence[Site], seconds: float, sent: float = 0.0, exchanges: float = 0.0) -> Accounts:
    """Cost, power, energy and carbon of a run of so many seconds; ``sent`` bytes leave each site in one exchange."""
    return Accounts(tuple(_count_account(site, seconds, sent, exchanges) for site in sites))


def _count_account(site: Site, seconds: float, sent: float, exchanges: float) -> SiteAccount:
    """Cost, power, energy and carbon of one site."""
    name, step = site.name, site.step
    power = power_of(step.cluster, step.gpus, site.pue, f"power of {name}")
    joules = leaf(f"energy of {name}", energy.energy, "J", power=scalar(power), seconds=seconds)
    electricity = traffic = None
    if site.electricity is not None:
        electricity = leaf(f"electricity of {name}", energy.energy_cost, "USD", energy=scalar(joules), electricity_price=site.electricity)
    if site.traffic is not None:
        traffic = leaf(f"traffic of {name}", wide_area.traffic_cost, "USD", sent=sent, exchanges=exchanges, traffic_price=site.traffic)
    return SiteAccount(
        site, leaf(f"rent of {name}", cost.rental, "USD", gpus=step.gpus, seconds=seconds, price=site.price), power, joules,
        leaf(f"carbon of {name}", energy.carbon, "kg", energy=scalar(joules), intensity=site.intensity), electricity, sent * exchanges,
        traffic,
    )  # fmt: skip


def tabulate_power(accounts: Accounts) -> Table:
    """Power, energy and carbon of each site."""
    rows = [
        {
            "site": a.site.name, "on": a.site.step.on, "gpus": a.site.step.gpus, "pue": a.site.pue.value, "power": scalar(a.power),
            "limit": a.site.limit, "energy": scalar(a.energy), "intensity": a.site.intensity.value * 3.6e9, "carbon": scalar(a.carbon),
        }
        for a in accounts.sites
    ]  # fmt: skip
    return Table("by_site", "Power and carbon of each site", filled_columns(SITES, rows), rows)


def tabulate_costs(accounts: Accounts) -> Table:
    """Rent, electricity and traffic of each site."""
    rows = []
    for a in accounts.sites:
        electricity = None if a.electricity is None else scalar(a.electricity)
        rows.append({
            "site": a.site.name, "price": a.site.price.value * 3600.0, "rent": scalar(a.rent),
            "electricity_price": None if a.site.electricity is None else a.site.electricity.value * 3.6e6, "electricity": electricity,
            "sent": a.sent, "traffic": None if a.traffic is None else scalar(a.traffic), "usd": sum(scalar(part) for part in a.parts),
        })  # fmt: skip
    paid = all(a.site.electricity_paid for a in accounts.sites)
    title = "Cost of each site" + ("" if paid else " (electricity is not in the total: a rented price includes it)")
    return Table("costs", title, filled_columns(COSTS, rows), rows)
