"""The money of a question: price, carbon of the grid, and power usage effectiveness."""

from __future__ import annotations

from typing import Any

import numpy as np

from ironlaw.catalog import load
from ironlaw.catalog.records import Grid, Price, PriceList
from ironlaw.catalog.sourced import ASKED, Sourced
from ironlaw.cluster import Cluster
from ironlaw.errors import QuestionError, UnknownNameError
from ironlaw.frozen import Frozen
from ironlaw.question import defaults
from ironlaw.question.asked import Asked
from ironlaw.question.assumptions import Assumptions, assume


class Money(Frozen):
    """What an hour costs and emits."""

    price: Sourced  # USD/s of one accelerator
    intensity: Sourced  # kg/J of the grid
    pue: Sourced


def bind_money(asked: Asked, cluster: Cluster, folders: tuple[str, ...], assumptions: Assumptions) -> Money:
    """Price, grid and PUE, as given or by default."""
    return Money(
        price_if_known(asked.price, cluster, folders, assumptions),
        bind_grid(asked.grid, folders, assumptions),
        bind_pue(asked.pue, cluster, assumptions),
    )


def bind_price(asked: float | str | None, cluster: Cluster, folders: tuple[str, ...], assumptions: Assumptions) -> Sourced:
    """USD per second and accelerator: the number given, the provider/term named, or the newest on-demand price."""
    if isinstance(asked, (int, float)):
        return Sourced(asked / 3600.0, "USD/s", f"{asked} USD/h", ASKED)
    price = find_price(asked, cluster, folders)
    text = f"{price.per_hour.text} ({price.provider}, {price.region}, {price.term}, {price.date})"
    assume(assumptions, "price", text, "given" if asked else "default")
    return price.per_hour


def find_price(asked: str | None, cluster: Cluster, folders: tuple[str, ...]) -> Price:
    """The price of the catalogue that is named as provider/term, or the newest on-demand price."""
    name = cluster.accelerator.name
    if name not in load.names("prices", folders):
        raise QuestionError(
            f"the catalogue has no price of {name}: give --price in USD per accelerator hour, or a record prices/{name}.toml"
        )
    prices: PriceList = load.record("prices", name, folders)
    if not asked:
        return usual_price(prices)
    wanted = load.fold_name(str(asked))
    listed = {f"{p.provider}/{p.term}": p for p in prices.price}  # later dates win
    by_name = {load.fold_name(k): p for k, p in listed.items()} | {
        load.fold_name(p.provider): p for p in prices.price if p.term == "on-demand"
    }
    if wanted not in by_name:
        raise UnknownNameError(f"price of {name}", str(asked), listed)
    return by_name[wanted]


def usual_price(prices: PriceList) -> Price:
    """The newest price on demand, which a question takes that gives none; the newest of all where none is on demand."""
    on_demand = [p for p in prices.price if p.term == "on-demand"] or list(prices.price)
    return max(on_demand, key=lambda p: p.date)


def price_if_known(asked: float | str | None, cluster: Cluster, folders: tuple[str, ...], assumptions: Assumptions) -> Sourced:
    """The price as ``bind_price`` finds it; nan where none is given or known, so that time and energy are answered."""
    name = cluster.accelerator.name
    if asked is None and name not in load.names("prices", folders):
        assume(assumptions, "price", f"none: the catalogue has no price of {name}", "default")
        return Sourced(np.nan, "USD/s", f"no price of {name} is known", ASKED)
    return bind_price(asked, cluster, folders, assumptions)


def bind_grid(asked: Any, folders: tuple[str, ...], assumptions: Assumptions) -> Sourced:
    """Carbon per energy: the number given, the region named, or the world average."""
    if isinstance(asked, (int, float)):
        return Sourced(asked / 3.6e9, "kg/J", f"{asked} g/kWh", ASKED)
    grid: Grid = load.record("grids", asked or defaults.GRID, folders)
    assume(assumptions, "grid", f"{grid.title}: {grid.intensity.text} ({grid.year})", "given" if asked else "default")
    return grid.intensity


def bind_pue(asked: float | None, cluster: Cluster, assumptions: Assumptions) -> Sourced:
    """Power of the building over power of the machines: given, or the default of the site."""
    if asked is not None:
        return Sourced(asked, "1", str(asked), ASKED)
    assume(assumptions, "pue", cluster.systems.pue.text, "default")
    return cluster.systems.pue
