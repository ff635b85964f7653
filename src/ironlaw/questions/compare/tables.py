"""The headline and the tables of a comparison of accelerators."""

from __future__ import annotations

import math
from itertools import combinations
from typing import Any

from ironlaw.questions.answer import Column, Table
from ironlaw.questions.compare.candidates import Candidate, FirstOrder
from ironlaw.questions.compare.first_order import intensities, micro_batch_tokens
from ironlaw.questions.remedies import REMEDIES
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


def costs(candidates: list[Candidate], values: dict[str, Any]) -> tuple[str, dict[str, float]]:
    """USD per million tokens by accelerator, all from one model: from the estimate where it has an answer for at least two of them.

    Peaks and bandwidths that are given are in the simple prices and the three-roof model, not in the estimate.
    """
    full = {c.label: c.trained.usd_per_million_tokens for c in candidates if c.trained}
    answered = [(c.label, c.first_order.usd_per_million_tokens) for c in candidates if c.first_order]
    first = {name: usd for name, usd in answered if usd is not None}
    simple = values.get("three_roof") == "as-printed" or len(full) < 2 or bool(values.get("peak") or values.get("bandwidth"))
    return ("the three-roof model", first) if simple and len(first) > 1 else ("estimate", full)


def metrics(candidates: list[Candidate], values: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """For each simple price, whether it ranks the candidates as their cost per token does, and how far from proportional it is."""
    cost = costs(candidates, values)[1]
    dearest_first = sorted((c for c in candidates if cost.get(c.label)), key=lambda c: -cost[c.label])
    priced = list({c.accelerator: c for c in dearest_first}.values())  # of several frameworks the cheapest
    if len(priced) < 2:
        return {}
    ranking = {}
    for metric in METRICS:
        pairs = combinations([(getattr(c.prices, metric), cost[c.label]) for c in priced], 2)
        ratios = [getattr(c.prices, metric) / cost[c.label] for c in priced]
        ranking[metric] = {
            "orders": all((a[0] < b[0]) == (a[1] < b[1]) for a, b in pairs),
            "spread": max(ratios) / min(ratios) if min(ratios) > 0 else math.inf,
        }
    return ranking


def best_metric(candidates: list[Candidate], values: dict[str, Any]) -> str | None:
    """The price that ranks the candidates as their cost does; if both do, the price nearer to proportional."""
    ranking = metrics(candidates, values)
    return min(ranking, key=lambda m: (not ranking[m]["orders"], ranking[m]["spread"])) if ranking else None


def rule_pick(candidates: list[Candidate]) -> str | None:
    """The pick of the rule of the cost-of-bandwidth note: cheapest HBM bandwidth, not network-bound, and it reaches the rate."""
    eligible = [c for c in candidates if c.first_order and math.isfinite(c.first_order.gpus) and c.first_order.bound != "network"]
    return min(eligible, key=lambda c: c.prices.usd_per_tbs_hour).label if eligible else None


def headline(candidates: list[Candidate], knobs: Knobs, values: dict[str, Any]) -> list[str]:
    """The answer in sentences: the cheapest, which simple price to go by, whether memory binds, what the three-roof model adds."""
    lines = _say_cheapest(candidates, values) + _say_metric(candidates, values)
    return lines + (_say_memory(candidates, knobs, values) + _say_network(candidates, values) if values.get("three_roof") != "off" else [])


def _say_cheapest(candidates: list[Candidate], values: dict[str, Any]) -> list[str]:
    """The accelerator with the cheapest token, and those below the target rate."""
    if values.get("task") == "inference":
        return ["forward only: answered by the three-roof model alone, without an estimate of training"]
    trained = sorted(
        ((c.label, c.planned, c.trained) for c in candidates if c.planned and c.trained), key=lambda c: c[2].usd_per_million_tokens
    )
    if not trained:
        return ["none of these accelerators does the job as asked"]
    name, plan, best = trained[0]
    lines = [
        f"cheapest per token: {plan.gpus:,.0f} x {name}, {best.usd_per_million_tokens:.4g} USD per million tokens,"
        f" {best.usd_per_hour:,.0f} USD/h, {best.tokens_per_second:,.0f} tokens/s, MFU {best.mfu:.1%}, bound by {best.bound}"
    ]
    slow = [name for name, _, training in trained if not training.meets_target]
    if slow:
        lines.append(f"below the target of {values['target_tokens_per_second']:,.0f} tokens/s: {', '.join(slow)}")
    return lines


def _say_metric(candidates: list[Candidate], values: dict[str, Any]) -> list[str]:
    """Which simple price ranks the accelerators as their cost per token does."""
    ranking, best = metrics(candidates, values), best_metric(candidates, values)
    if best is None:
        return []
    model = costs(candidates, values)[0]
    lines = [
        f"{name} {'ranks' if ranking[m]['orders'] else 'does not rank'} them as their cost per token does (by {model});"
        f" the ratio of the two varies {ranking[m]['spread']:.3g}x"
        for m, name in METRICS.items()
    ]
    return [*lines, f"so rank them by {METRICS[best]}" if ranking[best]["orders"] else "use the cost per token: neither price ranks them"]


def _say_memory(candidates: list[Candidate], knobs: Knobs, values: dict[str, Any]) -> list[str]:
    """Intensity against the balance of each accelerator, and the batch below which memory would bind."""
    reached, *with_weights = (float(term.value) for term in intensities(knobs, values))
    balances = dict.fromkeys(c.prices.machine_balance for c in candidates)
    binding = [c.label for c in candidates if c.prices.machine_balance > reached]
    text = f"three-roof model: intensity {reached:,.0f} FLOP/B, machine balance {', '.join(f'{b:,.0f}' for b in balances)}"
    if binding:
        return [f"{text}: memory binds on {', '.join(binding)} rather than arithmetic"]
    batches = [c.first_order.memory_batch for c in candidates if c.first_order and c.first_order.memory_batch is not None]
    finite = [batch for batch in batches if math.isfinite(batch)]
    lines = [text + ": memory never binds" + (f", unless the batch is below {max(finite):,.0f} tokens" if finite else "")]
    for intensity in with_weights:
        tokens = micro_batch_tokens(values)
        lines.append(f"with weights, which every micro-batch of {tokens:,.0f} tokens reads again, intensity is {intensity:,.0f} FLOP/B")
    return lines


def _say_network(candidates: list[Candidate], values: dict[str, Any]) -> list[str]:
    """What the network does to the answer of the three-roof model."""
    target = values.get("target_tokens_per_second")
    lines = []
    for candidate in candidates:
        name, first, real = candidate.label, candidate.first_order, candidate.real_ranks
        if first is None:
            continue
        if real is not None:
            lines.append(
                f"as printed, {name}: {first.gpus:,.0f} GPUs; with that many ranks it is bound by {real.bound_at_planned_ranks}"
                + _data_parallel_limit(first, " and pure data parallelism reaches at most")
            )
        elif target and not math.isfinite(first.gpus):
            limit = _data_parallel_limit(first, "; data parallelism reaches at most")
            lines.append(f"three-roof model, {name}: no count reaches {target:,.0f} tokens/s{limit}")
    pick = rule_pick(candidates)
    cost = costs(candidates, values)[1]
    if target and pick and cost and pick != min(cost, key=lambda name: cost[name]):
        lines.append(f"the rule of the cost-of-bandwidth note (reaches the rate, not bound by the network, cheapest HBM) would pick {pick}")
    return lines


def _data_parallel_limit(first: FirstOrder, words: str) -> str:
    """Where data parallelism stops to scale, and the batch that the target needs."""
    if first.cap is None:
        return ""
    needed = first.batch_for_target
    return f"{words} {first.cap:,.0f} tokens/s" + (f"; the target needs a batch of {needed / 1e6:.3g} M tokens" if needed else "")


def tables(candidates: list[Candidate], knobs: Knobs, values: dict[str, Any]) -> tuple[Table, ...]:
    """Prices, the estimate, the three-roof model, what helps, and the knobs."""
    rows = [candidate.row() for candidate in candidates]
    once = list({row["accelerator"]: row for row in reversed(rows)}.values())[::-1]  # what no framework changes
    listed = [Table("prices", "Prices of the hardware", _PRICES, once)]
    if values.get("task") != "inference":
        listed.append(Table("estimate", "By estimate, each with the plan it chooses, sorted by rent", columns_of(_ESTIMATE, rows), rows))
        listed.append(Table("plans", "Plans of the estimate", columns_of(_PLANS, rows), [row for row in rows if "plan" in row]))
    if values.get("three_roof") != "off":
        as_printed = values.get("three_roof") == "as-printed"
        version = "as the cost-of-bandwidth note prints it" if as_printed else "network term corrected"
        title = f"By the three-roof model ({version}; first order, simplified)"
        listed.append(Table("three_roofs", title, _FIRST + (_PRINTED if as_printed else ()), once))
        listed.append(Table("crossovers", "Where the bound of the three-roof model changes", _CROSSOVERS, once if knobs.trains else ()))
        settings = [{"knob": "--" + flag, "value": _knob_value(knobs, name), "meaning": text} for flag, name, text in KNOBS]
        listed.append(Table("knobs", "Knobs of the three-roof model", _KNOBS, settings))
    bounds = {c.trained.bound for c in candidates if c.trained} | {c.first_order.bound for c in candidates if c.first_order}
    fixes = [{"bound": bound, "helps": helps} for bound, helps in REMEDIES.items() if bound in bounds]
    listed.append(Table("fixes", "What helps", (Column("bound", "bound by"), Column("helps", "what helps")), fixes))
    return tuple(listed)


def columns_of(columns: tuple[Column, ...], rows: list[dict[str, Any]]) -> tuple[Column, ...]:
    """The columns, without that of the framework where one is compared."""
    return columns if any("framework" in row for row in rows) else tuple(column for column in columns if column is not _FRAMEWORK)


def _knob_value(knobs: Knobs, name: str) -> float | None:
    """The value of a knob; None for a utilization that differs by resource."""
    return None if name == "efficiency" and knobs.each is not None else float(getattr(knobs, name))


LEFT_OUT = (
    "the three-roof model leaves out the traffic of tensor, pipeline and context parallelism and the routing of experts, and counts"
    " replicas of several accelerators as one; the network column of the estimate has all of it"
)
_NAME = Column("accelerator", "accelerator")
_FRAMEWORK = Column("framework", "framework")
_PRICES = (
    _NAME, Column("usd_per_gpu_hour", "USD/GPU-h", "1"), Column("usd_per_tbs_hour", "USD/h per TB/s", "1"),
    Column("usd_per_pflops_hour", "USD/h per PFLOP/s", "1"), Column("machine_balance", "balance, FLOP/B", "1"),
)  # fmt: skip
_ESTIMATE = (
    _NAME, _FRAMEWORK, Column("gpus", "GPUs", "1"), Column("fits", "fits"), Column("memory_share", "memory", "%"),
    Column("tokens_per_second", "tokens/s", "1"), Column("mfu", "MFU", "%"), Column("bound", "bound"),
    Column("hbm_share", "HBM share", "%"), Column("network_share", "network", "%"), Column("cluster_hbm", "cluster HBM", "B/s"),
    Column("usd_per_hour", "USD/h", "USD"), Column("usd_per_million_tokens", "USD/M tokens", "1"),
)  # fmt: skip
_PLANS = (_NAME, _FRAMEWORK, Column("batch_tokens", "batch", "token"), Column("plan", "plan"))
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
