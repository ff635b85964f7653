"""What clouds rent, beside the records that describe it: one row for each instance type."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ironlaw.catalog import load
from ironlaw.catalog.records import Cloud, Instance, Price
from ironlaw.errors import IronlawError


def instances(folders: tuple[str, ...] = (), only: str = "") -> list[dict[str, Any]]:
    """A row for each instance type of every cloud, or of one: its accelerators, node record, network and newest on-demand price.

    Rates are B/s in one direction, prices USD/s of one accelerator; None where they are not known.

    >>> row = next(row for row in instances() if row["instance"] == "p5.48xlarge")
    >>> row["accelerator"], row["count"], row["node"], round(row["network"] * 8 / 1e9), round(row["per_accelerator"] * 8 / 1e9)
    ('h100-sxm', 8, 'p5', 3200, 400)
    """
    names = [load.resolve("clouds", only, folders)] if only else load.names("clouds", folders)
    return [
        _row(load.record("clouds", name, folders), one, folders) for name in names for one in load.record("clouds", name, folders).instance
    ]


def _row(cloud: Cloud, one: Instance, folders: tuple[str, ...]) -> dict[str, Any]:
    """The row of one instance type."""
    rate = one.network.value if one.network is not None else node_rate(one.node, folders) if one.node else None
    price = newest_price(cloud, one.accelerator, folders)
    return {
        "cloud": cloud.name,
        "instance": one.name,
        "accelerator": one.accelerator,
        "count": int(one.gpus.value),
        "node": one.node or None,
        "network": rate,
        "per_accelerator": None if rate is None else rate / one.gpus.value,
        "usd_per_hour": None if price is None else price.per_hour.value * 3600.0,
        "priced": None if price is None else price.date,
        "missing": one.missing or ("" if price is not None else f"no price of {cloud.provider} is in the catalogue"),
    }


def node_rate(name: str, folders: tuple[str, ...] = ()) -> float:
    """NIC rate of a whole node on its usual fabric, one direction [B/s]."""
    node = load.record("nodes", name, folders)
    if node.nic_bandwidth is not None:
        return float(node.nic_bandwidth.value * node.accelerators.value)
    return float(node.nics.value * load.record("fabrics", node.usual_fabric, folders).nic_bandwidth.value)


def newest_price(cloud: Cloud, accelerator: str, folders: tuple[str, ...] = ()) -> Price | None:
    """The newest on-demand price that a cloud asks for an accelerator; None where the catalogue has none."""
    if accelerator not in load.names("prices", folders):
        return None
    asked = [
        price
        for price in load.record("prices", accelerator, folders).price
        if price.term == "on-demand" and price.provider in (cloud.provider, *cloud.also)
    ]
    return max(asked, key=lambda price: price.date) if asked else None


def problems(cloud: Cloud, folders: tuple[str, ...]) -> Iterator[str]:
    """Find instance types whose node record has another count or network, or is not found under their name."""
    for one in cloud.instance:
        if not one.node:
            if not one.missing:
                yield f"instance {one.name} has neither node nor missing"
            continue
        try:
            node = load.record("nodes", one.node, folders)
            load.resolve("accelerators", one.accelerator, folders)
            named = load.resolve("nodes", one.name, folders)
        except IronlawError as error:
            yield f"instance {one.name}: {error}"
            continue
        if named != one.node:
            yield f"instance {one.name}: --node {one.name} is {named}, expected {one.node}"
        if node.accelerators.value != one.gpus.value:
            yield f"instance {one.name} has {one.gpus.text} accelerators, its node {one.node} has {node.accelerators.text}"
        if one.network is not None and abs(node_rate(one.node, folders) / one.network.value - 1.0) > 0.01:
            yield f"instance {one.name}: network {one.network.text}, its node {one.node} has {node_rate(one.node, folders) * 8e-9:g} Gb/s"
