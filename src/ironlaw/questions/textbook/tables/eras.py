"""Historic training runs: their operations, what limited them, their cost then, and the cost of their operations today."""

from __future__ import annotations

from typing import Any

from ironlaw.catalog import load
from ironlaw.catalog.sourced import Source
from ironlaw.cautions.record import Sentence
from ironlaw.cautions.table import caution
from ironlaw.estimate.bind.cluster import cluster_of
from ironlaw.estimate.bind.money import bind_grid, bind_price, bind_pue
from ironlaw.estimate.layer.counts import active_parameters
from ironlaw.estimate.step.run import power_of
from ironlaw.law import cost, energy, flops, run
from ironlaw.question.assumptions import Assumptions, assume
from ironlaw.questions.answer import Answer, Column, Table
from ironlaw.questions.textbook.tables import dense_peak, read_numbers, sourced
from ironlaw.terms import Term, leaf, total

ON, EFFICIENCY = "h100-sxm", 0.4
COLUMNS = (
    Column("year", "year"), Column("run", "run"), Column("parameters", "active parameters", "parameter"),
    Column("tokens", "tokens", "token"), Column("flop_text", "FLOP"), Column("usd", "USD then", "USD"), Column("grade", "grade"),
    Column("today", "USD today", "USD"), Column("joules", "energy today", "J"), Column("kg_co2e", "CO2e today", "kg"),
    Column("bound", "limited by"), Column("by", "source"),
)  # fmt: skip


def table(values: dict[str, Any], folders: tuple[str, ...]) -> Answer:
    """Operations by law from published parameters and tokens; their cost today at the catalogue's price and peak."""
    numbers, sources = read_numbers("eras")
    notes: Assumptions = []
    on = values.get("on", ON)
    if "on" not in values:
        assume(notes, "on", ON, "default")
    cluster = cluster_of({"on": on, "precision": "bf16"}, folders, [])
    peak = dense_peak(cluster.accelerator)
    price = bind_price(values.get("price"), cluster, folders, notes)
    grid, pue = bind_grid(values.get("grid"), folders, notes), bind_pue(values.get("pue"), cluster, notes)
    efficiency = values.get("mfu", EFFICIENCY)
    if "mfu" not in values:
        assume(notes, "mfu", f"{EFFICIENCY:g} of the dense peak", "default")
    rows, terms = [], []
    for item in numbers["run"]:
        parameters = item.get("parameters")
        if "model" in item:
            parameters = float(active_parameters(load.record("models", item["model"], folders)))
        row = _published_row(item, parameters, sources)
        if "usd" in item:
            paid = sourced(item["usd"], "USD", f"{item['usd']:,.0f} USD", sources[item["source"]], item.get("note", ""))
            terms.append(leaf(f"{item['name']}, paid", _as_published, "USD", usd=paid))
        operations = _count_operations(item, parameters, sources)
        if operations is not None:
            seconds = leaf(
                f"{item['name']}, accelerator time", run.iron_law, "s", operations=operations.value, peak=peak, efficiency=efficiency
            )
            today = leaf(f"{item['name']}, today", cost.rental, "USD", gpus=1.0, seconds=seconds.value, price=price)
            power = power_of(cluster, 1.0, pue, f"{item['name']}, power")
            joules = leaf(f"{item['name']}, energy", energy.energy, "J", power=power.value, seconds=seconds.value)
            carbon = leaf(f"{item['name']}, carbon", energy.carbon, "kg", energy=joules.value, intensity=grid)
            row |= {"flop": float(operations.value), "flop_text": f"{float(operations.value):.3g}", "today": float(today.value)}
            row |= {"joules": float(joules.value), "kg_co2e": float(carbon.value)}
            terms += [operations, seconds, today, power, joules, carbon]
        rows.append(row)
    both = [row for row in rows if row["usd"] and row["today"]]
    headline = [
        Sentence(
            f"{row['run']} ({row['year']}): {row['flop']:.3g} FLOP, {row['usd']:,.0f} USD then, {row['today']:,.0f} USD on {on} today",
            "run",
            {name: row[name] for name in ("run", "year", "flop", "usd", "today")},
        )
        for row in both[:1] + both[-1:]
    ]
    warning = caution("published-costs")
    tables = (Table("eras", "Training runs, and what limited them", COLUMNS, rows),)
    return Answer("Eras of training", headline, tables, terms, assumptions=notes, warnings=[warning], folders=folders)


def _published_row(item: dict[str, Any], parameters: float | None, sources: dict[str, Source]) -> dict[str, Any]:
    """What is published of one historic run."""
    source = sources[item["source"]]
    return {
        "year": str(item["year"]), "run": item["name"], "parameters": parameters, "tokens": item.get("tokens"), "flop": None,
        "flop_text": "-", "usd": item.get("usd"), "grade": source.grade if "usd" in item else "-", "today": None,
        "joules": None, "kg_co2e": None, "bound": item["bound"], "by": source.title, "note": item.get("note", ""),
        "tokens_from": sources[item["tokens_source"]].title if "tokens" in item else None,
    }  # fmt: skip


def _count_operations(item: dict[str, Any], parameters: float | None, sources: dict[str, Source]) -> Term | None:
    """6 FLOP per parameter and token; the sum of its matrix products for a network of images; None where neither is published."""
    name = f"{item['name']}, work"
    if parameters and item.get("tokens"):
        tokens = sourced(item["tokens"], "token", f"{item['tokens'] / 1e9:g} B tokens", sources[item["tokens_source"]])
        return leaf(name, flops.training, "FLOP", parameters=parameters, tokens=tokens)
    if "products" not in item:
        return None
    parts = [leaf(label, flops.gemm, "FLOP", m=float(m), n=float(n), k=float(k)) for label, m, n, k in item["products"]]
    forward = total("forward, one image", parts)
    return total(name, [forward], times=3.0 * item["samples"] * item["epochs"])


def _as_published(usd: Any) -> Any:
    """A published cost: ``usd``."""
    return usd
