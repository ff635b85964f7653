"""What a comparison of accelerators says: its sentences and its tables, from the rows of ``questions.compare``."""

from __future__ import annotations

import math
from itertools import combinations
from typing import TYPE_CHECKING, Any

from ironlaw.questions.answer import Column, Table

if TYPE_CHECKING:
    from ironlaw.questions.textbook.three_roof import Work
    from ironlaw.terms import Term

METRICS = {"usd_per_pflops_hour": "USD per PFLOP/s and hour", "usd_per_tbs_hour": "USD per TB/s and hour"}
HBM_FIX = "flash attention, fused kernels, selective recompute, 8-bit optimizer states, larger batch, experts, cheaper HBM"
FIXES = {
    "compute": "better kernels, higher clocks, less recompute, lower precision, more parallelism; if slow: overlap, input pipeline",
    "memory": HBM_FIX,
    "hbm": HBM_FIX,
    "network": "larger batch, fewer data-parallel ranks (tp, pp, sharding), overlap, faster NICs, compressed gradients, placement",
    "pipeline": "more micro-batches, more chunks (vpp), fewer stages",
    "dispatch": "CUDA graphs, larger micro-batches, fused kernels",
}
KNOBS = (
    ("alpha-opt", "optimizer_traffic", "28 moved by Adam with fp32 master weights; 16 for 8-bit states; fewer where sharded or offloaded"),
    ("c-act", "activation_passes", "fewer with flash attention and fused kernels, more with long context"),
    ("gamma", "gamma", "1 to 1.4: recomputation"),
    ("kappa", "kappa", "6 to train, 2 forward only; of the active parameters of a mixture"),
    ("global-batch-tokens", "tokens_per_step", "larger spreads optimizer and network bytes over more tokens, until training suffers"),
    ("utilization", "efficiency", "0.6 to 0.9 of the roof that binds"),
)


def costs(rows: list[dict[str, Any]], values: dict[str, Any]) -> tuple[str, dict[str, float]]:
    """USD per million tokens by accelerator, all from one model: the estimate's where it answers for two or more of them.

    Peaks and bandwidths that are given are in the simple prices and the first-order model, not in the estimate.
    """
    full, first = (
        {row["accelerator"]: row[key] for row in rows if math.isfinite(row.get(key, math.nan))}
        for key in ("usd_per_million_tokens", "first_order_usd_per_million_tokens")
    )
    simple = values.get("three_roof") == "as-printed" or len(full) < 2 or bool(values.get("peak") or values.get("bandwidth"))
    return ("three roofs", first) if simple and len(first) > 1 else ("estimate", full)


def metrics(rows: list[dict[str, Any]], values: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """For each simple price: does it order the candidates as their cost per token does, and how far from proportional is it."""
    cost = costs(rows, values)[1]
    known = [row for row in rows if cost.get(row["accelerator"])]
    if len(known) < 2:
        return {}
    found = {}
    for metric in METRICS:
        pairs = combinations([(row[metric], cost[row["accelerator"]]) for row in known], 2)
        ratios = [row[metric] / cost[row["accelerator"]] for row in known]
        found[metric] = {
            "orders": all((a[0] < b[0]) == (a[1] < b[1]) for a, b in pairs),
            "spread": max(ratios) / min(ratios) if min(ratios) > 0 else math.inf,
        }
    return found


def best_metric(rows: list[dict[str, Any]], values: dict[str, Any]) -> str | None:
    """The price that orders the candidates as their cost does; of two that do, the one nearer to proportional."""
    found = metrics(rows, values)
    return min(found, key=lambda m: (not found[m]["orders"], found[m]["spread"])) if found else None


def rule_pick(rows: list[dict[str, Any]]) -> str | None:
    """What document 000's rule picks: reaches the rate, is not bound by the network, has the cheapest HBM bandwidth."""
    able = [r for r in rows if math.isfinite(r.get("first_order_gpus", math.nan)) and r["first_order_bound"] != "network"]
    return min(able, key=lambda row: row["usd_per_tbs_hour"])["accelerator"] if able else None


def headline(rows: list[dict[str, Any]], work: Work, values: dict[str, Any]) -> list[str]:
    """The answer in sentences: the cheapest, which price to go by, whether memory binds, what the first-order model adds."""
    lines = _cheapest(rows, values) + _metric(rows, values)
    return lines + (_memory(rows, work, values) + _network(rows, values) if values.get("three_roof") != "off" else [])


def _cheapest(rows: list[dict[str, Any]], values: dict[str, Any]) -> list[str]:
    if values.get("task") == "inference":
        return ["run forward only: the first-order model alone answers, no training is estimated"]
    known = sorted((row for row in rows if row.get("usd_per_million_tokens") is not None), key=lambda row: row["usd_per_million_tokens"])
    if not known:
        return ["no accelerator of these does the job as asked"]
    best = known[0]
    lines = [
        f"cheapest per token: {best['gpus']:,.0f} x {best['accelerator']}, {best['usd_per_million_tokens']:.4g} USD per million tokens,"
        f" {best['usd_per_hour']:,.0f} USD/h, {best['tokens_per_second']:,.0f} tokens/s, MFU {best['mfu']:.1%}, bound by {best['bound']}"
    ]
    late = [row["accelerator"] for row in known if not row["meets_target"]]
    if late:
        lines.append(f"below the target of {values['target_tokens_per_second']:,.0f} tokens/s: {', '.join(late)}")
    return lines


def _metric(rows: list[dict[str, Any]], values: dict[str, Any]) -> list[str]:
    """Which simple price the cost of a token follows."""
    found, best = metrics(rows, values), best_metric(rows, values)
    if best is None:
        return []
    model = costs(rows, values)[0]
    lines = [
        f"{name} {'orders' if found[m]['orders'] else 'does not order'} them as their cost per token does (by {model});"
        f" it is proportional to it within {found[m]['spread']:.3g}x"
        for m, name in METRICS.items()
    ]
    lines.append(f"so go by {METRICS[best]}" if found[best]["orders"] else "so go by neither, but by the cost per token itself")
    return lines


def _memory(rows: list[dict[str, Any]], work: Work, values: dict[str, Any]) -> list[str]:
    """Intensity against the machines' balance, and the batch at which memory would bind."""
    reached, *anew = (float(term.value) for term in intensities(work, values))
    balances = [row["machine_balance"] for row in rows]
    binding = [row["accelerator"] for row in rows if row["machine_balance"] > reached]
    text = f"three roofs: intensity {reached:,.0f} FLOP/B, machines balance at {', '.join(f'{b:,.0f}' for b in balances)}"
    if binding:
        return [f"{text}: memory binds on {', '.join(binding)} rather than arithmetic"]
    batches = [row["first_order_memory_batch"] for row in rows if math.isfinite(row.get("first_order_memory_batch", math.nan))]
    lines = [text + ": memory never binds" + (f", unless the batch fell below {max(batches):,.0f} tokens" if batches else "")]
    for each in anew:
        tokens = microbatch(values)
        lines.append(f"counting weights, which every micro-batch of {tokens:,.0f} tokens reads anew, it is {each:,.0f} FLOP/B")
    return lines


def intensities(work: Work, values: dict[str, Any]) -> list[Term]:
    """Operations for each byte as the three-roof model counts them; in training also with the weights that it leaves out.

    Every micro-batch moves all weights three times: forward, input gradient, weight gradient.
    """
    from ironlaw.law import kernels, traffic
    from ironlaw.terms import leaf

    flop, moved = float(work.flop().value), float(work.moved().value)
    found = [leaf("three-roof intensity", kernels.intensity, "FLOP/B", flop=flop, traffic=moved)]
    if work.trains:
        weights = float(traffic.elementwise(work.parameters, work.element, 3.0)) / microbatch(values)
        found.append(leaf("intensity with weights", kernels.intensity, "FLOP/B", flop=flop, traffic=moved + weights))
    return found


def microbatch(values: dict[str, Any]) -> float:
    """Tokens of a micro-batch, for which the weights are read."""
    return float(values.get("micro_batch_size", 1.0) * values["seq_len"])


def _network(rows: list[dict[str, Any]], values: dict[str, Any]) -> list[str]:
    """What the network does to the first-order answer."""
    target = values.get("target_tokens_per_second")
    lines = []
    for row in rows:
        name, count = row["accelerator"], row["first_order_gpus"]
        if "bound_at_planned_ranks" in row:
            lines.append(
                f"as printed, {name}: {count:,.0f} GPUs; with that many ranks it is bound by {row['bound_at_planned_ranks']}"
                + _cap(row, " and pure data parallelism ends at")
            )
        elif target and not math.isfinite(count):
            lines.append(f"three roofs, {name}: no count reaches {target:,.0f} tokens/s" + _cap(row, "; data parallelism ends at"))
    pick = rule_pick(rows)
    cost = costs(rows, values)[1]
    if target and pick and cost and pick != min(cost, key=lambda name: cost[name]):
        lines.append(f"document 000's rule (reaches the rate, not bound by the network, cheapest HBM) would pick {pick}")
    return lines


def _cap(row: dict[str, Any], words: str) -> str:
    if "first_order_cap" not in row:
        return ""
    text = f"{words} {row['first_order_cap']:,.0f} tokens/s"
    needed = row.get("first_order_batch_for_target")
    return text + (f"; the target needs a batch of {needed / 1e6:.3g} M tokens" if needed else "")


def tables(rows: list[dict[str, Any]], work: Work, values: dict[str, Any]) -> tuple[Table, ...]:
    """Prices, the estimate, the first-order model, what helps and what its knobs mean."""
    shown = [{key: value for key, value in row.items() if key not in ("roofs", "warnings")} for row in rows]
    found = [Table("prices", "What the hardware costs", _PRICES, shown)]
    if values.get("task") != "inference":
        found.append(Table("estimate", "By estimate, each with its best plan, by rent", _ESTIMATE, shown))
        found.append(Table("plans", "Its plans", _PLANS, [row for row in shown if "plan" in row]))
    if values.get("three_roof") != "off":
        how = "as document 000 prints it" if values.get("three_roof") == "as-printed" else "network term corrected"
        first = _FIRST + (_PRINTED if values.get("three_roof") == "as-printed" else ())
        found.append(Table("three_roofs", f"By the three-roof model ({how}; first order, simplified)", first, shown))
        found.append(Table("crossovers", "Where the three-roof model's bound changes", _CROSSOVERS, shown if work.trains else ()))
        knobs = [{"knob": "--" + flag, "value": _knob(work, name), "meaning": text} for flag, name, text in KNOBS]
        found.append(Table("knobs", "Knobs of the three-roof model", _KNOBS, knobs))
    bounds = {row.get("bound") for row in rows} | {row.get("first_order_bound") for row in rows}
    fixes = [{"bound": bound, "helps": FIXES[bound]} for bound in FIXES if bound in bounds]
    found.append(Table("fixes", "What helps", (Column("bound", "bound by"), Column("helps", "what helps")), fixes))
    return tuple(found)


def _knob(work: Work, name: str) -> float | None:
    """The value of a knob; none where each resource has its own."""
    return None if name == "efficiency" and work.each is not None else float(getattr(work, name))


LEFT_OUT = (
    "three roofs leave out what tensor, pipeline and context parallelism send, and the routing of experts: replicas of several accelerators"
    " count as one; the network column of the estimate has all of it"
)
_NAME = Column("accelerator", "accelerator")
_PRICES = (
    _NAME,
    Column("usd_per_gpu_hour", "USD/GPU-h", "1"),
    Column("usd_per_tbs_hour", "USD/(TB/s h)", "1"),
    Column("usd_per_pflops_hour", "USD/(PFLOP/s h)", "1"),
    Column("machine_balance", "balance FLOP/B", "1"),
)
_ESTIMATE = (
    _NAME,
    Column("gpus", "GPUs", "1"),
    Column("fits", "fits"),
    Column("memory_share", "memory", "%"),
    Column("tokens_per_second", "tokens/s", "1"),
    Column("mfu", "MFU", "%"),
    Column("bound", "bound"),
    Column("hbm_share", "HBM share", "%"),
    Column("network_share", "network", "%"),
    Column("cluster_hbm", "cluster HBM", "B/s"),
    Column("usd_per_hour", "USD/h", "USD"),
    Column("usd_per_million_tokens", "USD/M tokens", "1"),
)
_PLANS = (_NAME, Column("batch_tokens", "batch", "token"), Column("plan", "plan"))
_FIRST = (
    _NAME,
    Column("first_order_compute", "compute tokens/s", "1"),
    Column("first_order_memory", "HBM tokens/s", "1"),
    Column("first_order_network", "network tokens/s", "1"),
    Column("first_order_rate", "per GPU", "1"),
    Column("first_order_mfu", "MFU", "%"),
    Column("first_order_bound", "bound"),
    Column("first_order_gpus_per_replica", "GPUs/replica", "1"),
    Column("first_order_gpus", "GPUs", "1"),
    Column("first_order_usd_per_hour", "USD/h", "USD"),
    Column("first_order_cluster_hbm", "HBM used", "B/s"),
    Column("first_order_usd_per_million_tokens", "USD/M tokens", "1"),
)
_PRINTED = (
    Column("network_at_given_ranks", "network at --dp", "1"),
    Column("network_at_planned_ranks", "network at GPUs", "1"),
    Column("bound_at_planned_ranks", "bound then"),
)
_CROSSOVERS = (
    _NAME,
    Column("first_order_memory_batch", "memory binds below", "token"),
    Column("first_order_network_batch", "network binds below", "token"),
    Column("first_order_cap", "cap tokens/s", "1"),
    Column("first_order_batch_for_target", "batch for the target", "token"),
)
_KNOBS = (Column("knob", "option"), Column("value", "value", "1"), Column("meaning", "meaning"))
