"""Document 004's study of ten sites that train 70B parameters: as it was printed, by name, and corrected.

Simplified as the document is: a constant MFU, as many accelerators as make a step about a second, nothing beside computation.
As printed, the cost of idle accelerators is divided by the price and counts those of the last row (E004-2, E004-3), and DiLoCo
sends fp8 under the name of bf16 (E004-5). Corrected, all three are put right, and a ring takes the place of the pipe (E004-6).
"""

from __future__ import annotations

import math
import tomllib
from pathlib import Path
from typing import Any

from ironlaw.questions.answer import Answer, Column, Table

STUDY = Path(__file__).parent / "studies" / "ten_sites.toml"


def study(folders: tuple[str, ...] = ()) -> Answer:
    """Both tables of communication and the table of latency, a row for each batch."""
    from ironlaw.catalog import load

    inputs = tomllib.loads(STUDY.read_text(encoding="utf-8"))
    peak = load.record("accelerators", inputs["accelerator"], folders).peak["bf16"].value
    rows = [_row(inputs, float(batch), inputs["communication"]["tokens"], peak) for batch in inputs["batches"]]
    printed = [_printed(inputs, row, rows[-1]) for row in rows]
    corrected = [_corrected(inputs, row) for row in rows]
    terms = _terms(inputs, rows[1])
    by = {term.name: float(term.value) for term in terms}
    return Answer(
        "document 004's ten sites (simplified)",
        [
            f"at 1M tokens a batch the document's pipe takes {by['waiting'] / 86400:,.1f} days beside {by['computing'] / 86400:,.1f} of "
            f"computation ({by['share']:.1%}); a ring {by['waiting on a ring'] / 86400:,.1f} ({by['share on a ring']:.1%}), "
            f"DiLoCo every {inputs['communication']['inner_steps']} steps on a ring {by['share with DiLoCo']:.1%}",
            f"accelerators that wait for the pipe cost {by['cost of waiting'] / 1e9:.3f} billion USD; the whole run "
            f"{by['cost'] / 1e9:.3f} billion, its computation alone {by['cost of computing'] / 1e6:.1f} million",
        ],
        (_printed_table(printed), _corrected_table(corrected), *_latency_tables(inputs, peak)),
        terms,
        warnings=["simplified: constant MFU, accelerators rounded down, no plan, no memory: ironlaw sites MODEL ... answers in full"],
        folders=folders,
    )  # fmt: skip


def _row(inputs: dict[str, Any], batch: float, tokens: float, peak: float) -> dict[str, float]:
    """Accelerators for a step of about a second, rounded down; the step; the steps, rounded down; the training (F004.3)."""
    from ironlaw.law import flops, run

    work = flops.training(inputs["parameters"], batch)
    gpus = math.floor(run.iron_law(work, peak, inputs["mfu"]))
    step = float(run.iron_law(work, gpus * peak, inputs["mfu"]))
    steps = float(tokens // batch)
    return {"batch": batch, "gpus": float(gpus), "step": step, "steps": steps, "training": steps * step}


def _pipe(inputs: dict[str, Any], size: float) -> float:
    from ironlaw.law import states, wide_area

    link = inputs["communication"]
    return float(wide_area.shared_pipe(link["sites"], states.state(inputs["parameters"], size, 1), link["bandwidth"]))


def _share(communication: float, row: dict[str, float]) -> float:
    from ironlaw.law import wide_area

    return float(wide_area.communication_share(communication, row["training"]))


def _printed(inputs: dict[str, Any], row: dict[str, float], last: dict[str, float]) -> dict[str, float]:
    """A row of the document's table, its mistakes with it (E004-2, -3, -5); the fp8 days are the true ones (E004-4)."""
    link = inputs["communication"]
    bf16, fp8 = (_pipe(inputs, link[name]) * row["steps"] for name in ("bf16", "fp8"))
    diloco = _pipe(inputs, link["fp8"]) * (row["steps"] / link["inner_steps"])
    return {
        "batch": row["batch"], "exchange": _pipe(inputs, link["bf16"]), "bf16": bf16, "bf16_share": _share(bf16, row), "fp8": fp8,
        "fp8_share": _share(fp8, row), "diloco": diloco, "diloco_share": _share(diloco, row),
        "idle_bf16": bf16 * last["gpus"] / 3600.0 / inputs["price"], "idle_fp8": fp8 * last["gpus"] / 3600.0 / inputs["price"],
        "bandwidth": float(link["bandwidth"]),
    }  # fmt: skip


def _corrected(inputs: dict[str, Any], row: dict[str, float]) -> dict[str, float]:
    """The same row put right: idle cost multiplied, the row's own accelerators, DiLoCo in bf16, and a ring."""
    from ironlaw.law import collectives, cost, overlap, states

    link, price = inputs["communication"], inputs["price"] / 3600.0
    bf16, fp8 = (_pipe(inputs, link[name]) * row["steps"] for name in ("bf16", "fp8"))
    ring_step = float(
        collectives.ring_all_reduce(link["sites"], states.state(inputs["parameters"], link["bf16"], 1), link["bandwidth"], 0.0)
    )
    ring, every = ring_step * row["steps"], link["inner_steps"]
    return {
        "batch": row["batch"], "gpus": row["gpus"], "idle_bf16": float(cost.rental(row["gpus"], bf16, price)),
        "idle_fp8": float(cost.rental(row["gpus"], fp8, price)), "fp8": fp8,
        "diloco": bf16 / every, "diloco_share": _share(bf16 / every, row),
        "ring_step": ring_step, "ring": ring, "ring_share": _share(ring, row), "ring_diloco": ring / every,
        "ring_diloco_share": _share(ring / every, row), "ring_exposed": float(overlap.exposed(ring_step, row["step"])),
        "compute_usd": float(cost.rental(row["gpus"], row["training"], price)),
        "total_usd": float(cost.rental(row["gpus"], row["training"] + bf16, price)), "total": row["training"] + bf16,
    }  # fmt: skip


def _terms(inputs: dict[str, Any], row: dict[str, float]) -> list[Any]:
    """The numbers of the headline as the nodes that made them: the row of one million tokens."""
    from ironlaw.law import collectives, cost, states, wide_area
    from ironlaw.terms import Term, leaf, total

    link, price, gpus = inputs["communication"], inputs["price"] / 3600.0, row["gpus"]
    size = leaf("gradients", states.state, "B", parameters=inputs["parameters"], bytes_per_parameter=link["bf16"], shards=1)
    pipe = leaf("pipe", wide_area.shared_pipe, "s", n=link["sites"], size=float(size.value), bandwidth=link["bandwidth"])
    ring = leaf("ring", collectives.ring_all_reduce, "s", n=link["sites"], size=float(size.value), bandwidth=link["bandwidth"], latency=0.0)
    computing = total("computing", [Term("step", row["step"], "s")], times=row["steps"])
    waiting = total("waiting", [pipe], times=row["steps"])
    on_ring = total("waiting on a ring", [ring], times=row["steps"])
    every = leaf(
        "exposed with DiLoCo", wide_area.exposed_per_step, "s",
        communication=float(ring.value), window=0.0, inner_steps=link["inner_steps"], fragments=1,
    )  # fmt: skip
    shares = [
        leaf(name, wide_area.communication_share, "1", communication=float(waits.value), compute=row["step"])
        for name, waits in (("share", pipe), ("share on a ring", ring), ("share with DiLoCo", every))
    ]
    seconds = {"cost of computing": computing.value, "cost of waiting": waiting.value, "cost": computing.value + waiting.value}
    money = [leaf(name, cost.rental, "USD", gpus=gpus, seconds=float(time), price=price) for name, time in seconds.items()]
    return [size, computing, waiting, on_ring, *shares, *money]


def _latency_tables(inputs: dict[str, Any], peak: float) -> list[Table]:
    """Light one way each step, the document's lower bound (it never ran, E004-7), with the accelerators of each row."""
    from ironlaw.law import cost, scaling, wide_area

    place, price = inputs["latency"], inputs["price"] / 3600.0
    tokens = float(scaling.rule_tokens(inputs["parameters"], place["tokens_per_parameter"]))
    ways, rows = [], []
    light: dict[str, float] = {}
    for name, said in (
        ("lyon", "Joliot-Curie where the document has it (Lyon)"),
        ("tgcc", "Joliot-Curie where it is"),
        ("el-capitan", "El Capitan"),
    ):
        metres = float(wide_area.great_circle(*place["from"], *place[name]))
        light[name] = float(wide_area.light_time(metres))
        ways.append({"to": said, "metres": metres, "light": light[name]})
    for batch in inputs["batches"]:
        row = _row(inputs, float(batch), tokens, peak)
        found: dict[str, float] = {"batch": row["batch"], "gpus": row["gpus"]}
        for name, seconds in light.items():
            key = name.replace("-", "_")
            found[key] = row["steps"] * seconds
            found[f"{key}_gpu_seconds"] = found[key] * row["gpus"]
            found[f"{key}_usd"] = float(cost.rental(row["gpus"], found[key], price))
        rows.append(found)
    columns = [Column("batch", "batch", "token"), Column("gpus", "GPUs", "1")]
    for key, said in (("lyon", "to Lyon"), ("tgcc", "to Bruyeres"), ("el_capitan", "to El Capitan")):
        columns += [Column(key, said, "s"), Column(f"{key}_usd", "idle, USD", "USD")]
    return [
        Table("distances", "From Jean Zay (light in vacuum, one way: a lower bound)", (
            Column("to", "to"), Column("metres", "over the ground", "m"), Column("light", "light", "s")), ways),
        Table("latency", f"Light one way each step, {tokens / 1e12:g}T tokens (simplified)", tuple(columns), rows),
    ]  # fmt: skip


def _printed_table(rows: list[dict[str, float]]) -> Table:
    return Table("printed", "As printed (its idle cost is divided by the price; its DiLoCo sends fp8)", (
        Column("batch", "batch", "token"), Column("exchange", "exchange", "s"), Column("bf16", "bf16", "s"),
        Column("bf16_share", "share", "%"),
        Column("fp8", "fp8", "s"), Column("fp8_share", "share", "%"), Column("idle_bf16", "idle bf16", "USD"),
        Column("idle_fp8", "idle fp8", "USD"), Column("diloco", "DiLoCo", "s"), Column("diloco_share", "share", "%"),
    ), rows)  # fmt: skip


def _corrected_table(rows: list[dict[str, float]]) -> Table:
    return Table("corrected", "Corrected (DiLoCo in bf16; a ring over links of 10 GiB/s; costs multiplied)", (
        Column("batch", "batch", "token"), Column("gpus", "GPUs", "1"), Column("idle_bf16", "idle bf16", "USD"),
        Column("diloco", "DiLoCo", "s"), Column("diloco_share", "share", "%"), Column("ring", "ring", "s"),
        Column("ring_share", "share", "%"),
        Column("ring_diloco", "ring DiLoCo", "s"), Column("ring_diloco_share", "share", "%"), Column("total_usd", "whole run", "USD"),
    ), rows)  # fmt: skip
