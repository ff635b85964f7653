"""Sentences and tables of a comparison by the three-roof model."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from ironlaw.cautions.record import Caution, Sentence
from ironlaw.cautions.table import caution
from ironlaw.question.defaults import USUAL_MFU
from ironlaw.questions.answer import Column, Table
from ironlaw.questions.compare.candidates import Hardware
from ironlaw.questions.textbook.first_order import FirstOrder, Textbook, intensities, micro_batch_tokens
from ironlaw.questions.textbook.three_roof import Knobs

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


def rule_pick(books: Sequence[Textbook]) -> str | None:
    """The pick of the rule of the cost-of-bandwidth note: cheapest HBM bandwidth, not network-bound, and it reaches the rate."""
    eligible = [b for b in books if math.isfinite(b.first_order.gpus) and b.first_order.bound != "network"]
    return min(eligible, key=lambda b: b.hardware.prices.usd_per_tbs_hour).hardware.name if eligible else None


def say_three_roofs(
    hardware: Sequence[Hardware], books: Sequence[Textbook], cost: dict[str, float], knobs: Knobs, values: dict[str, Any]
) -> list[str]:
    """What the three-roof model says of memory and of the network."""
    return [*_say_memory(hardware, books, knobs, values), *_say_network(books, cost, values)]


def _say_memory(hardware: Sequence[Hardware], books: Sequence[Textbook], knobs: Knobs, values: dict[str, Any]) -> list[str]:
    """Intensity against the balance of each accelerator, and the batch below which memory would bind."""
    reached, *with_weights = (float(term.value) for term in intensities(knobs, values))
    balances = [one.prices.machine_balance for one in hardware]
    binding = [one.name for one in hardware if one.prices.machine_balance > reached]
    told: dict[str, Any] = {"intensity": reached, "machine_balance": balances}
    text = f"three-roof model: intensity {reached:,.0f} FLOP/B, machine balance {', '.join(f'{b:,.0f}' for b in balances)}"
    if binding:
        return [Sentence(f"{text}: memory binds on {', '.join(binding)} rather than arithmetic", "memory-binds", told | {"on": binding})]
    batches = [b.first_order.memory_batch for b in books if b.first_order.memory_batch is not None]
    finite = [batch for batch in batches if math.isfinite(batch)]
    text += ": memory never binds" + (f", unless the batch is below {max(finite):,.0f} tokens" if finite else "")
    lines: list[str] = [Sentence(text, "memory-never-binds", told | {"batch": max(finite, default=None)})]
    for intensity in with_weights:
        tokens = micro_batch_tokens(values)
        text = f"with weights, which every micro-batch of {tokens:,.0f} tokens reads again, intensity is {intensity:,.0f} FLOP/B"
        lines.append(Sentence(text, "with-weights", {"intensity": intensity, "tokens": tokens}))
    return lines


def _say_network(books: Sequence[Textbook], cost: dict[str, float], values: dict[str, Any]) -> list[str]:
    """What the network does to the answer of the three-roof model."""
    target = (values.get("target_tokens_per_second") or [None])[0]
    lines: list[str] = []
    for book in books:
        name, first, real = book.label, book.first_order, book.real_ranks
        if real is not None:
            text = f"as printed, {name}: {first.gpus:,.0f} GPUs; with that many ranks it is bound by {real.bound_at_planned_ranks}"
            told = {"accelerator": name, "gpus": first.gpus, "by": real.bound_at_planned_ranks, "cap": first.cap}
            lines.append(Sentence(text + _data_parallel_limit(first, " and pure data parallelism reaches at most"), "as-printed", told))
        elif target and not math.isfinite(first.gpus):
            limit = _data_parallel_limit(first, "; data parallelism reaches at most")
            text = f"three-roof model, {name}: no count reaches {target:,.0f} tokens/s{limit}"
            lines.append(Sentence(text, "no-count", {"accelerator": name, "target": target, "cap": first.cap}))
    pick = rule_pick(books)
    if target and pick and cost and pick != min(cost, key=lambda name: cost[name]):
        text = f"the rule of the cost-of-bandwidth note (reaches the rate, not bound by the network, cheapest HBM) would pick {pick}"
        lines.append(Sentence(text, "rule-pick", {"accelerator": pick}))
    return lines


def _data_parallel_limit(first: FirstOrder, words: str) -> str:
    """Where data parallelism stops to scale, and the batch that the target needs."""
    if first.cap is None:
        return ""
    needed = first.batch_for_target
    return f"{words} {first.cap:,.0f} tokens/s" + (f"; the target needs a batch of {needed / 1e6:.3g} M tokens" if needed else "")


def warnings(books: Sequence[Textbook]) -> list[Caution]:
    """What the three-roof model leaves out, and where it implies a higher MFU than tuned runs reach."""
    implied = {book.label: book.first_order.mfu for book in books if book.first_order.mfu > USUAL_MFU[1]}
    usual = f"{USUAL_MFU[0]:.0%} to {USUAL_MFU[1]:.0%}"
    shares = ", ".join(f"{share:.0%} on {name}" for name, share in implied.items())
    above = [caution("three-roof-mfu", shares=shares, usual=usual, implied=implied)] if implied else []
    return [*above, caution("three-roof-leaves-out")]


def tables(books: Sequence[Textbook], knobs: Knobs, values: dict[str, Any]) -> list[Table]:
    """The three-roof model, where its bound changes, and its knobs."""
    as_printed = values.get("formulas") == "as-printed"
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
