"""The price of each accelerator of a comparison, what bandwidth and arithmetic cost by it, and whether prices can be compared."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from datetime import date
from itertools import combinations
from typing import Any

from ironlaw.catalog.records import Price
from ironlaw.cautions.record import Caution
from ironlaw.cautions.table import caution
from ironlaw.errors import UnsupportedError
from ironlaw.estimate.bind.cluster import bind_precision, cluster_of
from ironlaw.estimate.bind.money import find_price, price_if_known
from ironlaw.estimate.fabric.group_links import nic_rate
from ironlaw.law import cost, kernels
from ironlaw.precision import precision_of
from ironlaw.question.assumptions import Assumptions
from ironlaw.question.defaults import PRICE_DAYS
from ironlaw.questions.answer import Column, Table
from ironlaw.questions.compare.candidates import Device, Hardware, Prices
from ironlaw.terms import Term, leaf, plain

TERA, PETA, HOUR = 1e12, 1e15, 3600.0
METRICS = {"usd_per_pflops_hour": "USD per PFLOP/s", "usd_per_tbs_hour": "USD per TB/s of HBM"}
_SIMPLE = (
    Column("price", "price"), Column("ranks", "ranks them"), Column("spread", "ratio varies, x", "1"), Column("by", "cost by"),
    Column("use", "advice"),
)  # fmt: skip


def bind_hardware(name: str, values: Mapping[str, Any], folders: tuple[str, ...]) -> Hardware:
    """An accelerator with its cluster, price and roofs; in its usual precision where it lacks the asked one."""
    precision = values.get("precision") or bind_precision(name, folders)
    given = {option: values[option] for option in ("node", "fabric", "scale_up_size", "nic_bandwidth") if option in values}
    try:
        cluster = cluster_of({**given, "on": name, "precision": precision}, folders, [])
    except UnsupportedError:  # the estimate says so, in a row of its own
        precision = bind_precision(name, folders)
        cluster = cluster_of({**given, "on": name, "precision": precision}, folders, [])
    notes: Assumptions = []
    asked = values["price"].get(name)
    price = price_if_known(asked, cluster, folders, notes)
    record = None if isinstance(asked, (int, float)) or math.isnan(price.value) else find_price(asked, cluster, folders)
    accelerator = cluster.accelerator
    dense_peak = accelerator.peak[precision_of(precision, folders).peak]
    device = Device(
        name=name,
        peak=values.get("peak", {}).get(name, dense_peak),
        bandwidth=values.get("bandwidth", {}).get(name, accelerator.hbm_bandwidth),
        nic=values.get("nic", {}).get(name, nic_rate(cluster)),
        capacity=accelerator.memory_capacity,
    )
    prices, terms = _price_resources(device, price)
    above = plain(device.peak) / plain(dense_peak)
    return Hardware(
        name=name,
        cluster=cluster,
        device=device,
        dense_peak=plain(dense_peak),
        price=price,
        record=record,
        prices=prices,
        terms=tuple(terms),
        assumptions=tuple({**item, "name": f"{name} {item['name']}"} for item in notes),
        warnings=(caution("above-dense-peak", accelerator=name, times=above),) if above > 1.0 else (),
    )


def _price_resources(device: Device, price: Any) -> tuple[Prices, list[Term]]:
    """What bandwidth and arithmetic cost, with their Terms."""
    name = device.name
    bandwidth = leaf(f"{name} price of HBM bandwidth", cost.per_bandwidth, "USD/B", price=price, bandwidth=device.bandwidth)
    arithmetic = leaf(f"{name} price of arithmetic", cost.per_flop, "USD/FLOP", price=price, peak=device.peak)
    balance = leaf(f"{name} machine balance", kernels.ridge_point, "FLOP/B", peak=device.peak, bandwidth=device.bandwidth)
    prices = Prices(
        usd_per_gpu_hour=plain(price) * HOUR,
        usd_per_tbs_hour=float(bandwidth.value) * HOUR * TERA,
        usd_per_pflops_hour=float(arithmetic.value) * HOUR * PETA,
        machine_balance=float(balance.value),
    )
    return prices, [bandwidth, arithmetic, balance]


def price_warnings(hardware: Sequence[Hardware]) -> list[Caution]:
    """One warning where the compared prices are of different terms, providers or times, or some are not known."""
    listed = [(one.name, one.record) for one in hardware if one.record is not None]
    reasons = _differences(listed)
    given = [one.name for one in hardware if one.record is None and not math.isnan(one.prices.usd_per_gpu_hour)]
    if given and listed:
        reasons.append(f"of {', '.join(given)} given, of the others from the catalogue")
    unknown = [one.name for one in hardware if math.isnan(one.prices.usd_per_gpu_hour)]
    lines = [caution("no-price", accelerators=unknown, first=unknown[0])] if unknown else []
    if reasons and len(hardware) > 1:
        lines.insert(0, caution("prices-not-comparable", reasons=reasons))
    return lines


def _differences(listed: Sequence[tuple[str, Price]]) -> list[str]:
    """In what the prices of the catalogue differ."""
    reasons = []
    for what in ("term", "provider"):
        by_value: dict[str, list[str]] = {}
        for name, price in listed:
            by_value.setdefault(getattr(price, what), []).append(name)
        if len(by_value) > 1:
            of = "; ".join(f"{value} for {', '.join(names)}" for value, names in by_value.items())
            reasons.append(f"{what}s differ ({of})")
    days = sorted(date.fromisoformat(price.date) for _, price in listed)
    if days and (days[-1] - days[0]).days > PRICE_DAYS:
        reasons.append(f"dates are {(days[-1] - days[0]).days} days apart ({days[0]} to {days[-1]})")
    return reasons


def rank_prices(hardware: Sequence[Hardware], cost: dict[str, float]) -> dict[str, dict[str, Any]]:
    """For each simple price, whether it ranks the candidates as their cost per token does, and how far from proportional it is."""
    priced = sorted((one for one in hardware if cost.get(one.name)), key=lambda one: -cost[one.name])
    if len(priced) < 2:
        return {}
    ranking = {}
    for metric in METRICS:
        pairs = combinations([(getattr(one.prices, metric), cost[one.name]) for one in priced], 2)
        ratios = [getattr(one.prices, metric) / cost[one.name] for one in priced]
        ranking[metric] = {
            "orders": all((a[0] < b[0]) == (a[1] < b[1]) for a, b in pairs),
            "spread": max(ratios) / min(ratios) if min(ratios) > 0 else math.inf,
        }
    return ranking


def best_metric(ranking: dict[str, dict[str, Any]]) -> str | None:
    """The price that ranks the candidates as their cost does; if both do, the price nearer to proportional."""
    return min(ranking, key=lambda m: (not ranking[m]["orders"], ranking[m]["spread"])) if ranking else None


def simple_prices(ranking: dict[str, dict[str, Any]], model: str) -> Table:
    """Which simple price ranks the accelerators as their cost per token does."""
    best = best_metric(ranking)
    rows = []
    for metric, name in METRICS.items():
        if metric in ranking:
            orders = bool(ranking[metric]["orders"])
            use = "rank by it" if metric == best and orders else "" if orders or metric != best else "use the cost per token"
            rows.append({"price": name, "ranks": orders, "spread": ranking[metric]["spread"], "by": model, "use": use})
    title = "Which simple price ranks the accelerators as their cost per token does"
    return Table("simple_prices", title, _SIMPLE, rows)
