"""Power, energy and carbon of every site, each on its own grid."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ironlaw.cluster import Cluster
from ironlaw.estimate.bind.money import bind_grid, bind_pue
from ironlaw.estimate.run import power_of
from ironlaw.law import energy
from ironlaw.question.assumptions import Assumptions
from ironlaw.questions.answer import Column
from ironlaw.questions.sites.places import Place
from ironlaw.terms import Term, leaf, total

SITES = (
    Column("site", "site"), Column("gpus", "accelerators", "1"), Column("power", "power (rated)", "W"), Column("limit", "available", "W"),
    Column("energy", "energy", "J"), Column("intensity", "g CO2e/kWh", "1"), Column("carbon", "kg CO2e", "1"),
)  # fmt: skip


@dataclass(frozen=True, eq=False)
class SitePower:
    """Power, energy and carbon of all sites together, and a row for each."""

    power: Term
    energy: Term
    carbon: Term
    rows: list[dict[str, Any]]

    @property
    def short(self) -> list[dict[str, Any]]:
        """Rows of sites with less power than their accelerators need."""
        return [row for row in self.rows if row["limit"] is not None and row["power"] > row["limit"]]


def count_site_power(
    values: dict[str, Any],
    gpus: Mapping[Place, float],
    limits: Mapping[str, float],
    cluster: Cluster,
    seconds: float,
    folders: tuple[str, ...],
    notes: Assumptions,
) -> SitePower:
    """Rated power of the accelerators at each site, its energy over the run, and the carbon of its grid."""
    pue = bind_pue(values.get("pue"), cluster, notes)
    powers, energies, carbons, rows = [], [], [], []
    for place, count in gpus.items():
        listed = place.grid is not None or any(note["name"] == "grid" for note in notes)
        intensity = bind_grid(place.grid, folders, [] if listed else notes)
        power = power_of(cluster, count, pue, f"power of {place.name}")
        joules = leaf(f"energy of {place.name}", energy.energy, "J", power=float(power.value), seconds=seconds)
        carbon = leaf(f"carbon of {place.name}", energy.carbon, "kg", energy=float(joules.value), intensity=intensity)
        powers.append(power)
        energies.append(joules)
        carbons.append(carbon)
        rows.append({
            "site": place.name, "gpus": count, "power": float(power.value), "limit": limits.get(place.name), "energy": float(joules.value),
            "carbon": float(carbon.value), "intensity": intensity.value * 3.6e9,
        })  # fmt: skip
    return SitePower(total("power", powers), total("energy", energies), total("carbon", carbons), rows)
