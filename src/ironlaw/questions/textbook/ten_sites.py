"""The published study of ten sites that train 70B parameters, as printed and corrected.

Simplified as the study is: a constant MFU, as many accelerators as make a step about a second, nothing overlapped with computation.
As printed, the cost of idle accelerators is divided by the price and counts the accelerators of the last row (errata E004-2, E004-3), and
DiLoCo sends fp8 under the name of bf16 (E004-5). The corrected table has none of these mistakes and a ring instead of the pipe (E004-6).
"""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ironlaw.catalog import load
from ironlaw.cautions.record import Sentence
from ironlaw.cautions.table import caution
from ironlaw.files import read_shipped
from ironlaw.law import collectives, cost, energy, flops, overlap, run, scaling, states, wide_area
from ironlaw.questions.answer import Answer, Column, Table
from ironlaw.terms import Term, leaf, total

INPUTS = Path(__file__).parent / "studies" / "ten_sites.toml"
DAY, HOUR = 86400.0, 3600.0
PLACES = (
    ("lyon", "Joliot-Curie where the study places it (Lyon)"),
    ("tgcc", "Joliot-Curie where it really is"),
    ("el-capitan", "El Capitan"),
)
PRINTED = (
    Column("batch", "batch", "token"), Column("exchange", "exchange", "s"), Column("bf16", "bf16", "s"),
    Column("bf16_share", "share", "%"),
    Column("fp8", "fp8", "s"), Column("fp8_share", "share", "%"), Column("idle_bf16", "idle bf16", "USD"),
    Column("idle_fp8", "idle fp8", "USD"), Column("diloco", "DiLoCo", "s"), Column("diloco_share", "share", "%"),
)  # fmt: skip
CORRECTED = (
    Column("batch", "batch", "token"), Column("gpus", "GPUs", "1"), Column("idle_bf16", "idle bf16", "USD"),
    Column("diloco", "DiLoCo", "s"), Column("diloco_share", "share", "%"), Column("ring", "ring", "s"),
    Column("ring_share", "share", "%"),
    Column("ring_diloco", "ring DiLoCo", "s"), Column("ring_diloco_share", "share", "%"), Column("total_usd", "whole run", "USD"),
)  # fmt: skip
ROUNDING = (
    Column("batch", "batch", "token"), Column("gpus", "GPUs, rounded down", "1"), Column("step", "step", "s"),
    Column("needed", "GPUs, rounded up", "1"), Column("needed_step", "step", "s"), Column("steps", "steps, rounded down", "1"),
    Column("flop", "FLOP, step", "FLOP"), Column("days", "computation", "s"),
    Column("usd", "computation", "USD"), Column("power", "power", "W"), Column("energy", "energy", "J"),
)  # fmt: skip
DISTANCES = (Column("to", "to"), Column("metres", "over the ground", "m"), Column("light", "light", "s"))
LATENCY = (
    Column("batch", "batch", "token"), Column("gpus", "GPUs", "1"), Column("lyon", "to Lyon", "s"), Column("lyon_usd", "idle, USD", "USD"),
    Column("tgcc", "to Bruyeres", "s"), Column("tgcc_usd", "idle, USD", "USD"),
    Column("el_capitan", "to El Capitan", "s"), Column("el_capitan_usd", "idle, USD", "USD"),
)  # fmt: skip


@dataclass(frozen=True)
class Study:
    """The inputs of the study, and the numbers it computes from them."""

    parameters: float
    mfu: float
    price: float  # USD per accelerator hour
    power: float  # of an accelerator with its share of the server [W]
    peak: float
    batches: tuple[float, ...]
    communication: dict[str, Any]
    latency: dict[str, Any]

    def training(self, batch: float, tokens: float) -> Training:
        """Accelerators for a step of about a second, rounded down; the step; the steps, rounded down."""
        operations = flops.training(self.parameters, batch)
        gpus = float(run.gpus_needed(operations, 1.0, self.peak, self.mfu, run.DOWN))
        step = float(run.iron_law(operations, gpus * self.peak, self.mfu))
        return Training(batch, gpus, step, float(run.steps(tokens, batch, run.DOWN)))

    def gradient_bytes(self, dtype: str) -> Any:
        """Bytes of all gradients in a type."""
        return states.state(self.parameters, self.communication[dtype], 1)

    def pipe(self, dtype: str) -> float:
        """Time of one exchange of gradients over the shared pipe."""
        link = self.communication
        return float(wide_area.shared_pipe(link["sites"], self.gradient_bytes(dtype), link["bandwidth"]))

    def ring(self) -> float:
        """Time of one exchange of bf16 gradients over a ring."""
        link = self.communication
        return float(collectives.ring_all_reduce(link["sites"], self.gradient_bytes("bf16"), link["bandwidth"], 0.0))

    def rent(self, gpus: float, seconds: float) -> float:
        """USD of accelerators for a time."""
        return float(cost.rental(gpus, seconds, self.price / HOUR))


@dataclass(frozen=True)
class Training:
    """The computation of a run with one batch."""

    batch: float
    gpus: float
    step: float
    steps: float

    @property
    def seconds(self) -> float:
        """Time of all steps."""
        return self.steps * self.step

    def share(self, communication: float) -> float:
        """Communication over communication and computation."""
        return float(wide_area.communication_share(communication, self.seconds))


def study(values: dict[str, Any], folders: tuple[str, ...] = ()) -> Answer:
    """The printed and the corrected table of communication and the table of latency, a row for each batch."""
    del values  # the study takes none
    inputs = tomllib.loads(read_shipped(INPUTS))
    peak = load.record("accelerators", inputs.pop("accelerator"), folders).peak["bf16"].value
    asked = Study(peak=peak, **inputs)
    runs = [asked.training(float(batch), asked.communication["tokens"]) for batch in asked.batches]
    terms = _headline_terms(asked, runs[1])
    values = {term.name: float(term.value) for term in terms}
    return Answer(
        "the study of ten sites (simplified)",
        _say(values, asked.communication["inner_steps"]),
        (
            Table(
                "printed",
                "As printed (its idle cost is divided by the price; its DiLoCo sends fp8)",
                PRINTED,
                [_make_printed_row(asked, row, runs[-1].gpus) for row in runs],
            ),
            Table(
                "corrected",
                "Corrected (DiLoCo in bf16; a ring over links of 10 GiB/s; costs multiplied)",
                CORRECTED,
                [_make_corrected_row(asked, row) for row in runs],
            ),
            Table(
                "rounding",
                f"Computation: accelerators for a step of one second, at {asked.mfu:.0%} of the peak and {asked.power:g} W each",
                ROUNDING,
                [_make_rounding_row(asked, float(batch)) for batch in asked.batches],
            ),
            *_latency_tables(asked),
        ),
        terms,
        warnings=[caution("constant-mfu-sites")],
        folders=folders,
    )


def _make_printed_row(asked: Study, row: Training, last_gpus: float) -> dict[str, float]:
    """A row of the printed table with its mistakes (E004-2, -3, -5); the fp8 days are the true ones (E004-4)."""
    exchange, exchange_fp8 = asked.pipe("bf16"), asked.pipe("fp8")
    bf16, fp8 = exchange * row.steps, exchange_fp8 * row.steps
    diloco = exchange_fp8 * (row.steps / asked.communication["inner_steps"])
    return {
        "batch": row.batch, "exchange": exchange, "bf16": bf16, "bf16_share": row.share(bf16), "fp8": fp8, "fp8_share": row.share(fp8),
        "diloco": diloco, "diloco_share": row.share(diloco),
        "idle_bf16": bf16 * last_gpus / HOUR / asked.price, "idle_fp8": fp8 * last_gpus / HOUR / asked.price,
        "bandwidth": float(asked.communication["bandwidth"]),
    }  # fmt: skip


def _make_corrected_row(asked: Study, row: Training) -> dict[str, float]:
    """The same row corrected: idle cost multiplied, the row's own accelerators, DiLoCo in bf16, and a ring."""
    bf16, fp8 = asked.pipe("bf16") * row.steps, asked.pipe("fp8") * row.steps
    ring_step = asked.ring()
    ring, every = ring_step * row.steps, asked.communication["inner_steps"]
    return {
        "batch": row.batch, "gpus": row.gpus, "idle_bf16": asked.rent(row.gpus, bf16), "idle_fp8": asked.rent(row.gpus, fp8), "fp8": fp8,
        "diloco": bf16 / every, "diloco_share": row.share(bf16 / every),
        "ring_step": ring_step, "ring": ring, "ring_share": row.share(ring), "ring_diloco": ring / every,
        "ring_diloco_share": row.share(ring / every), "ring_exposed": float(overlap.exposed(ring_step, row.step)),
        "compute_usd": asked.rent(row.gpus, row.seconds),
        "total_usd": asked.rent(row.gpus, row.seconds + bf16), "total": row.seconds + bf16,
    }  # fmt: skip


def _make_rounding_row(asked: Study, batch: float) -> dict[str, float]:
    """Accelerators rounded down, as the study does, and up, as a step of a second needs (E004-8); power and energy apart (E004-9)."""
    tokens = asked.communication["tokens"]
    row, operations = asked.training(batch, tokens), flops.training(asked.parameters, batch)
    needed = float(run.gpus_needed(operations, 1.0, asked.peak, asked.mfu, run.UP))
    power = float(energy.cluster_power(row.gpus, asked.power, 0.0, 1.0))
    return {
        "batch": batch, "gpus": row.gpus, "step": row.step, "needed": needed,
        "needed_step": float(run.iron_law(operations, needed * asked.peak, asked.mfu)), "steps": row.steps,
        "flop": float(operations), "days": row.seconds, "usd": asked.rent(row.gpus, row.seconds),
        "power": power, "energy": float(energy.energy(power, row.seconds)),
    }  # fmt: skip


def _say(values: dict[str, float], inner_steps: float) -> list[Sentence]:
    """Time and cost of waiting at 1M tokens a batch."""
    days = {name: values[name] / DAY for name in ("waiting", "computing", "waiting on a ring")}
    time = (
        f"at 1M tokens a batch the shared pipe takes {days['waiting']:,.1f} days beside {days['computing']:,.1f} of "
        f"computation ({values['share']:.1%}); a ring {days['waiting on a ring']:,.1f} ({values['share on a ring']:.1%}), "
        f"DiLoCo every {inner_steps} steps on a ring {values['share with DiLoCo']:.1%}"
    )
    money = (
        f"accelerators that wait for the pipe cost {values['cost of waiting'] / 1e9:.3f} billion USD; the whole run "
        f"{values['cost'] / 1e9:.3f} billion, its computation alone {values['cost of computing'] / 1e6:.1f} million"
    )
    shares = {"share": values["share"], "ring": values["share on a ring"], "diloco": values["share with DiLoCo"]}
    costs = {"waiting": values["cost of waiting"], "run": values["cost"], "computing": values["cost of computing"]}
    return [Sentence(time, "waiting", shares), Sentence(money, "cost", costs)]


def _headline_terms(asked: Study, row: Training) -> list[Term]:
    """The Terms of the headline, for one row."""
    link, price = asked.communication, asked.price / HOUR
    size = leaf("gradients", states.state, "B", parameters=asked.parameters, bytes_per_parameter=link["bf16"], shards=1)
    pipe = leaf("pipe", wide_area.shared_pipe, "s", n=link["sites"], size=float(size.value), bandwidth=link["bandwidth"])
    ring = leaf("ring", collectives.ring_all_reduce, "s", n=link["sites"], size=float(size.value), bandwidth=link["bandwidth"], latency=0.0)
    computing = total("computing", [Term("step", row.step, "s")], times=row.steps)
    waiting = total("waiting", [pipe], times=row.steps)
    on_ring = total("waiting on a ring", [ring], times=row.steps)
    every = leaf(
        "exposed with DiLoCo", wide_area.exposed_per_step, "s",
        communication=float(ring.value), window=0.0, inner_steps=link["inner_steps"], fragments=1,
    )  # fmt: skip
    shares = [
        leaf(name, wide_area.communication_share, "1", communication=float(waits.value), compute=row.step)
        for name, waits in (("share", pipe), ("share on a ring", ring), ("share with DiLoCo", every))
    ]
    seconds = {"cost of computing": computing.value, "cost of waiting": waiting.value, "cost": computing.value + waiting.value}
    money = [leaf(name, cost.rental, "USD", gpus=row.gpus, seconds=float(time), price=price) for name, time in seconds.items()]
    return [size, computing, waiting, on_ring, *shares, *money]


def _latency_tables(asked: Study) -> list[Table]:
    """Time of light, one way each step: the lower bound that the study announces but never computed (E004-7), for each row."""
    coordinates = asked.latency
    tokens = float(scaling.rule_tokens(asked.parameters, coordinates["tokens_per_parameter"]))
    distances, light = [], {}
    for name, title in PLACES:
        metres = float(wide_area.great_circle(*coordinates["from"], *coordinates[name]))
        light[name] = float(wide_area.light_time(metres))
        distances.append({"to": title, "metres": metres, "light": light[name]})
    rows = []
    for batch in asked.batches:
        training = asked.training(float(batch), tokens)
        row = {"batch": training.batch, "gpus": training.gpus}
        for name, seconds in light.items():
            key, waiting = name.replace("-", "_"), training.steps * seconds
            row |= {key: waiting, f"{key}_gpu_seconds": waiting * training.gpus, f"{key}_usd": asked.rent(training.gpus, waiting)}
        rows.append(row)
    return [
        Table("distances", "From Jean Zay (light in vacuum, one way: a lower bound)", DISTANCES, distances),
        Table("latency", f"Light one way each step, {tokens / 1e12:g}T tokens (simplified)", LATENCY, rows),
    ]
