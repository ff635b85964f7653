"""Every site with its accelerators, prices, power and grid: what the question gives, else the record of the place, else a default."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ironlaw.catalog import load
from ironlaw.catalog.sourced import ASKED, Sourced
from ironlaw.cautions.record import Caution
from ironlaw.cautions.table import caution
from ironlaw.errors import QuestionError
from ironlaw.estimate.bind.money import bind_grid, bind_price, bind_pue
from ironlaw.question.assumptions import Assumptions
from ironlaw.questions.sites.options import RECORDED
from ironlaw.questions.sites.places import Place, describe_nearest, each_site
from ironlaw.questions.sites.site_step import SiteStep, SiteSteps


@dataclass(frozen=True, eq=False)
class Site:
    """One site of a question."""

    place: Place
    step: SiteStep
    price: Sourced  # USD/s of one accelerator
    pue: Sourced
    intensity: Sourced  # kg/J
    grid_known: bool  # given, or of the place; False: the world average is assumed
    electricity: Sourced | None  # USD/J of large consumers, or given; None: unknown
    electricity_paid: bool  # on top of the price
    traffic: Sourced | None  # USD/B that leaves
    limit: float | None  # power that the site has [W]
    alone: SiteStep  # its step where it takes the whole batch

    @property
    def name(self) -> str:
        """The name of the place."""
        return self.place.name


def split_gpus(values: dict[str, Any], places: list[Place]) -> list[float]:
    """Accelerators of each site; in the simplified model a site may have a fraction of one."""
    asked = values["gpus"]
    if isinstance(asked, dict) or len(asked) > 1:
        counts = each_site(values, "gpus", places)
        if None in counts:
            raise QuestionError(f"--gpus has no count for {places[counts.index(None)].name}")
        return counts
    count = asked[0]
    per_site = count / len(places)
    if per_site != int(per_site) and "mfu" not in values:
        near = max(int(per_site), 1) * len(places)
        raise QuestionError(f"--gpus {count:g} cannot be split evenly over {len(places)} sites: give {near}, or a comma list")
    return [per_site] * len(places)


def bind_accelerators(values: dict[str, Any], places: list[Place], folders: tuple[str, ...]) -> list[str]:
    """The accelerator of each site, by its name in the catalogue."""
    names = each_site(values, "on", places)
    if None in names:
        raise QuestionError(f"--on names no accelerator for {places[names.index(None)].name}")
    return [load.resolve("accelerators", name, folders) for name in names]


def bind_sites(values: dict[str, Any], places: list[Place], steps: SiteSteps, folders: tuple[str, ...], notes: Assumptions) -> list[Site]:
    """Prices, power usage effectiveness, grid and power of every site."""
    columns = {name: each_site(values, name, places) for name in ("price", "pue", "grid", "wan_price", "power_limit")}
    electricity = _bind_electricity(values, places)
    sites: list[Site] = []
    for i, (place, step) in enumerate(zip(places, steps.sites, strict=True)):
        asked = {name: column[i] for name, column in columns.items()}
        grid = place.grid if asked["grid"] is None else asked["grid"]
        first = all(site.step.on != step.on for site in sites)
        sites.append(Site(
            place=place, step=step,
            price=bind_price(asked["price"], step.cluster, folders, notes if first else []),
            pue=bind_pue(asked["pue"], step.cluster, [] if _is_noted("pue", notes) else notes),
            intensity=bind_grid(grid, folders, [] if grid is not None or _is_noted("grid", notes) else notes),
            grid_known=grid is not None,
            electricity=electricity[i], electricity_paid="electricity_price" in values,
            traffic=_bind_traffic(asked["wan_price"]),
            limit=asked["power_limit"] or (place.power.value if place.power else None),
            alone=steps.alone[i],
        ))  # fmt: skip
    return sites


def _bind_traffic(price: float | None) -> Sourced | None:
    """The price of traffic, where it is given."""
    return None if price is None else Sourced(price, "USD/B", f"{price * 1e12:g} USD/TB", ASKED)


def _is_noted(name: str, notes: Assumptions) -> bool:
    return any(note["name"] == name for note in notes)


def _bind_electricity(values: dict[str, Any], places: list[Place]) -> list[Sourced | None]:
    """The price of electricity at each site; where it is paid, an unknown one is asked for by name."""
    given = each_site(values, "electricity_price", places, RECORDED)
    prices: list[Sourced | None] = []
    for place, price in zip(places, given, strict=True):
        if price == RECORDED:
            if place.electricity_price is None and "electricity_price" in values:
                raise QuestionError(
                    f"the catalogue has no price of electricity for {place.name}: give --electricity-price {place.name}=USD_PER_KWH"
                )
            prices.append(place.electricity_price)
        else:
            prices.append(Sourced(price, "USD/J", f"{price * 3.6e6:g} USD/kWh", ASKED))
    return prices


def warn_of_unknown(sites: list[Site], folders: tuple[str, ...]) -> list[Caution]:
    """Warnings of places whose grid is assumed: their carbon compares with nothing."""
    unknown = [site for site in sites if not site.grid_known and site.place.latitude is not None]
    return [caution("unknown-grid", site=site.name, nearest=describe_nearest(site.place, folders)) for site in unknown]
