"""Power, energy and carbon of a run, from given, rated and measured power side by side.

Rated power comes before measured power, as in every other verb: power is measured for few accelerators, and two accelerators, or two
verbs, are comparable on one basis only.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ironlaw.catalog import load
from ironlaw.catalog.sourced import Sourced
from ironlaw.cautions.record import Caution
from ironlaw.cautions.table import caution
from ironlaw.estimate.bind.money import bind_grid, bind_pue
from ironlaw.estimate.step.run import power_of_one
from ironlaw.law import energy
from ironlaw.question.assumptions import assume
from ironlaw.questions.answer import Column
from ironlaw.questions.asked_run import AskedRun
from ironlaw.terms import Term, leaf, scalar

ENERGY = (
    Column("basis", "power"), Column("node", "node", "W"), Column("network", "network", "W"), Column("pue", "PUE", "1"),
    Column("energy", "energy", "J"), Column("carbon_t", "t CO2e", "1"), Column("household_months", "household months", "1", on_page=False),
    Column("note", "source"),
)  # fmt: skip
MEASURED_POWER = (Column("run", "run"), Column("gpus", "GPUs", "1"), Column("gpu_hours", "GPU-hours", "1"), Column("power", "power", "W"))


@dataclass(frozen=True, eq=False)
class NodePower:
    """Power of one accelerator with its share of the node, from one basis: given, measured or rated."""

    basis: str
    power: Term | float
    note: str

    @property
    def watts(self) -> float:
        """The power as a number [W]."""
        return scalar(self.power)


@dataclass(frozen=True, eq=False)
class Power:
    """Power of a run's accelerators, and what turns it into energy and carbon."""

    nodes: tuple[NodePower, ...]  # the first is that of the answer: given; measured where --load is given; else rated, as in an estimate
    rated: float  # of one accelerator with its share of the node [W]
    network: float  # switches, for each accelerator [W]
    pue: Sourced
    intensity: Sourced
    household: Sourced
    record: Any  # published measurements of this accelerator, or None
    warnings: list[Caution]

    @property
    def drawn(self) -> float:
        """Power of the answer: of one accelerator with its share of node and network [W]."""
        return self.nodes[0].watts + self.network

    @property
    def limit(self) -> float:
        """Power to provide for one accelerator: rated, or drawn where that is more [W]."""
        return max(self.rated, self.drawn - self.network) + self.network


def bind_power(values: Mapping[str, Any], run: AskedRun, folders: tuple[str, ...]) -> Power:
    """Find given, measured and rated power, the grid and the PUE of a run."""
    notes: list[Any] = [] if run.group else run.assumptions  # an estimate has listed grid and PUE already
    intensity = bind_grid(values.get("grid"), folders, notes)
    pue = bind_pue(values.get("pue"), run.cluster, notes)
    network = float(values.get("network_power", 0.0))
    device = run.cluster.accelerator
    record = load.record("power", device.name, folders) if device.name in load.names("power", folders) else None
    load_share = _bind_load(values, run)
    rated = power_of_one(run.cluster)
    nodes = [NodePower("rated", rated, "board power plus a share of the node's limit: an upper bound, as in every verb")]
    warnings = []
    if record is not None:
        term = leaf("node power", energy.power_at_load, "W", waiting_power=record.waiting, busy_power=record.busy, load=load_share)
        measured = NodePower("measured", term, f"at {load_share:.0%} load, interpolated between measured runs")
        nodes.insert(0 if "load" in values else 1, measured)
    else:
        warnings.append(caution("no-measured-power", accelerator=device.name))
    if "power" in values:
        nodes.insert(0, NodePower("given", values["power"], "given in the question"))
    if not network:
        warnings.append(caution("switches-not-counted"))
    household = load.record("ownership", "default", folders).household_energy
    return Power(tuple(nodes), rated, network, pue, intensity, household, record, warnings)


def _bind_load(values: Mapping[str, Any], run: AskedRun) -> float:
    """Share of the time accelerators compute: given, from the estimate, or 1."""
    if "load" in values:
        return float(values["load"])
    if run.busy is None:
        assume(run.assumptions, "load", "1", "default")
        return 1.0
    return min(run.busy * run.useful / run.wall, 1.0)


def count_energy(run: AskedRun, power: Power, seconds: float) -> tuple[list[dict[str, Any]], list[Term]]:
    """Energy and carbon of the run, a row for each basis of power; the terms of the first row."""
    rows: list[dict[str, Any]] = []
    terms: list[Term] = []
    for node in power.nodes:
        total_power = leaf(
            "power", energy.cluster_power, "W", gpus=run.gpus, accelerator_power=node.watts,
            host_power_per_accelerator=power.network, pue=power.pue,
        )  # fmt: skip
        joules = leaf("energy", energy.energy, "J", power=scalar(total_power), seconds=seconds)
        carbon = leaf("carbon", energy.carbon, "kg", energy=scalar(joules), intensity=power.intensity)
        months = leaf("household months", energy.household_months, "1", energy=scalar(joules), household_energy=power.household)
        rows.append({
            "basis": node.basis, "node": node.watts, "network": power.network, "pue": power.pue.value, "energy": scalar(joules),
            "carbon": scalar(carbon), "carbon_t": scalar(carbon) / 1e3, "household_months": scalar(months), "note": node.note,
        })  # fmt: skip
        if not terms:
            terms = [*([node.power] if isinstance(node.power, Term) else []), total_power, joules, carbon, months]
    return rows, terms


def list_measured_runs(record: Any) -> list[dict[str, Any]]:
    """The published runs behind the measured power."""
    return [
        {"run": r.run, "gpus": r.gpus.value, "gpu_hours": r.accelerator_time.value / 3600.0, "power": r.power.value} for r in record.row
    ]
