"""Sentences and tables of a comparison by the three-roof model, and of the simple prices that may rank accelerators."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import combinations
from typing import Any

from ironlaw.cautions.record import Caution
from ironlaw.cautions.table import caution
from ironlaw.question.defaults import USUAL_MFU
from ironlaw.questions.answer import Column, Table
from ironlaw.questions.compare.candidates import Candidate, FirstOrder, Hardware, Textbook
from ironlaw.questions.compare.first_order import intensities, micro_batch_tokens
from ironlaw.questions.textbook.three_roof import Knobs

METRICS = {"usd_per_pflops_hour": "USD per PFLOP/s", "usd_per_tbs_hour": "USD per TB/s of HBM"}
KNOBS = (
    (
        "alpha-opt",
        "optimizer_traffic",
        "optimizer bytes per parameter: 28 for Adam with fp32 master weights, 16 for 8-bit states; less if sharded or offloaded",
    ),
    ("c-act", "activation_passes", "fewer with flash attention and fused kernels, more with long context"),
    ("gamma", "gamma", "1 to 1.4: recomputation"),
    ("kappa", "kappa", "6 to train, 2 forward only; of the active parameters of a mixture"),
    ("global-batch-tokens", "tokens_per_step", "larger spreads optimizer and network bytes over more tokens, until training suffers"),
    ("utilization", "efficiency", "0.6 to 0.9 of the roof that binds"),
)


def costs_of(candidates: Sequence[Candidate], books: Sequence[Textbook], values: dict[str, Any]) -> tuple[str, dict[str, float]]:
    """USD per million tokens by accelerator, all from one model: from the estimate where it has an answer for at least two of them.

    Of several counts the first, of several frameworks the cheapest. Peaks and bandwidths that are given are in the simple prices and the
    three-roof model, not in the estimate.
    """
    full: dict[str, float] = {}
    for row in candidates:
        if row.place == 0 and row.trained and not math.isnan(row.trained.usd_per_million_tokens):
            name = row.hardware.name
            full[name] = min(row.trained.usd_per_million_tokens, full.get(name, math.inf))
    first: dict[str, float] = {}
    for book in reversed(books):
        if book.first_order.usd_per_million_tokens is not None:
            first[book.hardware.name] = book.first_order.usd_per_million_tokens
    simple = values.get("three_roof") == "as-printed" or len(full) < 2 or bool(values.get("peak") or values.get("bandwidth"))
    return ("the three-roof model", first) if simple and len(first) > 1 else ("estimate", full)


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


def rule_pick(books: Sequence[Textbook]) -> str | None:
    """The pick of the rule of the cost-of-bandwidth note: cheapest HBM bandwidth, not network-bound, and it reaches the rate."""
    eligible = [b for b in books if math.isfinite(b.first_order.gpus) and b.first_order.bound != "network"]
    return min(eligible, key=lambda b: b.hardware.prices.usd_per_tbs_hour).hardware.name if eligible else None


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


def say_three_roofs(
    hardware: Sequence[Hardware], books: Sequence[Textbook], cost: dict[str, float], knobs: Knobs, values: dict[str, Any]
) -> list[str]:
    """What the three-roof model says of memory and of the network."""
    return [*_say_memory(hardware, books, knobs, values), *_say_network(books, cost, values)] if books else []


def _say_memory(hardware: Sequence[Hardware], books: Sequence[Textbook], knobs: Knobs, values: dict[str, Any]) -> list[str]:
    """Intensity against the balance of each accelerator, and the batch below which memory would bind."""
    reached, *with_weights = (float(term.value) for term in intensities(knobs, values))
    balances = [one.prices.machine_balance for one in hardware]
    binding = [one.name for one in hardware if one.prices.machine_balance > reached]
    text = f"three-roof model: intensity {reached:,.0f} FLOP/B, machine balance {', '.join(f'{b:,.0f}' for b in balances)}"
    if binding:
        return [f"{text}: memory binds on {', '.join(binding)} rather than arithmetic"]
    batches = [b.first_order.memory_batch for b in books if b.first_order.memory_batch is not None]
    finite = [batch for batch in batches if math.isfinite(batch)]
    lines = [text + ": memory never binds" + (f", unless the batch is below {max(finite):,.0f} tokens" if finite else "")]
    for intensity in with_weights:
        tokens = micro_batch_tokens(values)
        lines.append(f"with weights, which every micro-batch of {tokens:,.0f} tokens reads again, intensity is {intensity:,.0f} FLOP/B")
    return lines


def _say_network(books: Sequence[Textbook], cost: dict[str, float], values: dict[str, Any]) -> list[str]:
    """What the network does to the answer of the three-roof model."""
    target = (values.get("target_tokens_per_second") or [None])[0]
    lines = []
    for book in books:
        name, first, real = book.label, book.first_order, book.real_ranks
        if real is not None:
            lines.append(
                f"as printed, {name}: {first.gpus:,.0f} GPUs; with that many ranks it is bound by {real.bound_at_planned_ranks}"
                + _data_parallel_limit(first, " and pure data parallelism reaches at most")
            )
        elif target and not math.isfinite(first.gpus):
            limit = _data_parallel_limit(first, "; data parallelism reaches at most")
            lines.append(f"three-roof model, {name}: no count reaches {target:,.0f} tokens/s{limit}")
    pick = rule_pick(books)
    if target and pick and cost and pick != min(cost, key=lambda name: cost[name]):
        lines.append(f"the rule of the cost-of-bandwidth note (reaches the rate, not bound by the network, cheapest HBM) would pick {pick}")
    return lines


def _data_parallel_limit(first: FirstOrder, words: str) -> str:
    """Where data parallelism stops to scale, and the batch that the target needs."""
    if first.cap is None:
        return ""
    needed = first.batch_for_target
    return f"{words} {first.cap:,.0f} tokens/s" + (f"; the target needs a batch of {needed / 1e6:.3g} M tokens" if needed else "")


def warnings(books: Sequence[Textbook]) -> list[Caution]:
    """What the three-roof model leaves out, and where it implies a higher MFU than tuned runs reach."""
    if not books:
        return []
    implied = {book.label: book.first_order.mfu for book in books if book.first_order.mfu > USUAL_MFU[1]}
    usual = f"{USUAL_MFU[0]:.0%} to {USUAL_MFU[1]:.0%}"
    shares = ", ".join(f"{share:.0%} on {name}" for name, share in implied.items())
    above = [caution("three-roof-mfu", shares=shares, usual=usual, implied=implied)] if implied else []
    return [*above, caution("three-roof-leaves-out")]


def tables(books: Sequence[Textbook], knobs: Knobs, values: dict[str, Any]) -> list[Table]:
    """The three-roof model, where its bound changes, and its knobs; none where it is off."""
    if not books:
        return []
    as_printed = values.get("three_roof") == "as-printed"
    version = "as the cost-of-bandwidth note prints it" if as_printed else "network term corrected"
    rows = [book.row() for book in books]
    settings = [{"knob": "--" + flag, "value": _knob_value(knobs, name), "meaning": text} for flag, name, text in KNOBS]
    return [
        Table(
            "three_roofs", f"By the three-roof model ({version}; first order, simplified)", _FIRST + (_PRINTED if as_printed else ()), rows
        ),
        Table("crossovers", "Where the bound of the three-roof model changes", _CROSSOVERS, rows if knobs.trains else ()),
        Table("knobs", "Knobs of the three-roof model", _KNOBS, settings),
    ]


def _knob_value(knobs: Knobs, name: str) -> float | None:
    """The value of a knob; None for a utilization that differs by resource."""
    return None if name == "efficiency" and knobs.each is not None else float(getattr(knobs, name))


_NAME = Column("accelerator", "accelerator")
_SIMPLE = (
    Column("price", "price"), Column("ranks", "ranks them"), Column("spread", "ratio varies, x", "1"), Column("by", "cost by"),
    Column("use", "advice"),
)  # fmt: skip
_FIRST = (
    _NAME, Column("first_order_compute", "compute tokens/s", "1"), Column("first_order_memory", "HBM tokens/s", "1"),
    Column("first_order_network", "network tokens/s", "1"), Column("first_order_rate", "per GPU", "1"),
    Column("first_order_mfu", "MFU", "%"), Column("first_order_bound", "bound"),
    Column("first_order_gpus_per_replica", "GPUs/replica", "1"), Column("first_order_gpus", "GPUs", "1"),
    Column("first_order_usd_per_hour", "USD/h", "USD"), Column("first_order_cluster_hbm", "HBM used", "B/s"),
    Column("first_order_usd_per_million_tokens", "USD/M tokens", "1"),
)  # fmt: skip
_PRINTED = (
    Column("network_at_given_ranks", "network at --dp", "1"),
    Column("network_at_planned_ranks", "network at GPUs", "1"),
    Column("bound_at_planned_ranks", "bound then"),
)
_CROSSOVERS = (
    _NAME, Column("first_order_memory_batch", "memory binds below", "token"),
    Column("first_order_network_batch", "network binds below", "token"), Column("first_order_cap", "most tokens/s, data parallel", "1"),
    Column("first_order_batch_for_target", "batch for the target", "token"),
)  # fmt: skip
_KNOBS = (Column("knob", "option"), Column("value", "value", "1"), Column("meaning", "meaning"))
