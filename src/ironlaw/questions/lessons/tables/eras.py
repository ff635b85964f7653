"""Runs that mark eras of training: when, with what, what bound them, what was paid, and what their operations cost today."""

from __future__ import annotations

from typing import Any

from ironlaw.catalog.sourced import Source
from ironlaw.estimate.bind.cluster import cluster_of
from ironlaw.estimate.bind.money import bind_price
from ironlaw.estimate.layer.counts import active_parameters
from ironlaw.law import cost, flops, run
from ironlaw.question.assumptions import assume
from ironlaw.questions.answer import Answer, Column, Table
from ironlaw.questions.lessons.tables import numbers, sourced
from ironlaw.terms import Term, leaf, total

ON, EFFICIENCY = "h100-sxm", 0.4
COLUMNS = (
    Column("year", "year"), Column("run", "run"), Column("parameters", "for a token", "parameter"), Column("tokens", "tokens", "token"),
    Column("flop_text", "FLOP"), Column("usd", "USD then", "USD"), Column("grade", "grade"), Column("today", "USD today", "USD"),
    Column("bound", "what bound"), Column("by", "who says so"),
)  # fmt: skip


def table(values: dict[str, Any], folders: tuple[str, ...]) -> Answer:
    """Operations from parameters and tokens by law; today's cost of those operations at the price and peak of the catalogue."""
    from ironlaw.catalog import load

    found, sources = numbers("eras")
    notes: list[dict[str, Any]] = []
    on, precision = values.get("on", ON), "bf16"
    if "on" not in values:
        assume(notes, "on", ON, "default")
    cluster = cluster_of({"on": on, "precision": precision}, folders, [])
    rates = cluster.accelerator.peak
    peak = rates[precision] if precision in rates else rates["fp16"] if "fp16" in rates else rates["fp32"]
    price = bind_price(values.get("price"), cluster, folders, notes)
    assume(notes, "efficiency", f"{EFFICIENCY:g} of the dense peak", "default")
    rows, terms = [], []
    for item in found["run"]:
        cited = sources[item["source"]]
        parameters = item.get("parameters")
        if "model" in item:
            parameters = float(active_parameters(load.record("models", item["model"], folders)))
        work = _work(item, parameters, sources)
        row: dict[str, Any] = {
            "year": str(item["year"]), "run": item["name"], "parameters": parameters, "tokens": item.get("tokens"), "flop": None,
            "flop_text": "-", "usd": item.get("usd"), "grade": cited.grade if "usd" in item else "-", "today": None,
            "bound": item["bound"], "by": cited.title, "note": item.get("note", ""),
            "tokens_from": sources[item["tokens_source"]].title if "tokens" in item else None,
        }  # fmt: skip
        if "usd" in item:
            paid = sourced(item["usd"], "USD", f"{item['usd']:,.0f} USD", cited, item.get("note", ""))
            terms.append(leaf(f"{item['name']}, paid", _as_told, "USD", usd=paid))
        if work is not None:
            seconds = leaf(f"{item['name']}, accelerator time", run.iron_law, "s", operations=work.value, peak=peak, efficiency=EFFICIENCY)
            today = leaf(f"{item['name']}, today", cost.rental, "USD", gpus=1.0, seconds=seconds.value, price=price)
            row |= {"flop": float(work.value), "flop_text": f"{float(work.value):.3g}", "today": float(today.value)}
            terms += [work, seconds, today]
        rows.append(row)
    both = [row for row in rows if row["usd"] and row["today"]]
    headline = [
        f"{row['run']} ({row['year']}): {row['flop']:.3g} FLOP, {row['usd']:,.0f} USD then, {row['today']:,.0f} USD of {on} today"
        for row in both[:1] + both[-1:]
    ]
    notice = "USD then are what others have told or estimated, by rent, without people and failed runs; their grade stands beside"
    answer_table = Table("eras", "Runs, and what bound them", COLUMNS, rows)
    return Answer("Eras of training", headline, (answer_table,), terms, {}, notes, [notice], folders=folders)


def _work(item: dict[str, Any], parameters: float | None, sources: dict[str, Source]) -> Term | None:
    """Operations: 6 a parameter and token, or product by product for a network of images."""
    name = f"{item['name']}, work"
    if parameters and item.get("tokens"):
        tokens = sourced(item["tokens"], "token", f"{item['tokens'] / 1e9:g} B tokens", sources[item["tokens_source"]])
        return leaf(name, flops.training, "FLOP", parameters=parameters, tokens=tokens)
    if "products" not in item:
        return None
    parts = [leaf(what, flops.gemm, "FLOP", m=float(m), n=float(n), k=float(k)) for what, m, n, k in item["products"]]
    forward = total("forward, one image", parts)
    return total(name, [forward], times=3.0 * item["samples"] * item["epochs"])


def _as_told(usd: Any) -> Any:
    """What a source tells: ``usd``."""
    return usd
