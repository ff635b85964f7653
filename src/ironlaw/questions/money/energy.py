"""Power, energy and carbon of a run by each basis of power, which are never mixed: given, measured, rated."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ironlaw.estimate.bind.records import assume
from ironlaw.questions.answer import Column, Table
from ironlaw.questions.asked_run import Work, asked, one
from ironlaw.terms import Term, leaf

ENERGY = (
    Column("basis", "power"),
    Column("node", "node", "W"),
    Column("network", "network", "W"),
    Column("pue", "PUE", "1"),
    Column("energy", "energy", "J"),
    Column("carbon_t", "t CO2e", "1"),
    Column("household_months", "household months", "1"),
    Column("note", "where from"),
)


class Watts:
    """Power of a node for each accelerator: given, measured or rated, each by itself."""

    def __init__(self, values: Mapping[str, Any], work: Work, folders: tuple[str, ...]) -> None:
        from ironlaw.catalog import load
        from ironlaw.estimate.run import bind_grid
        from ironlaw.law import energy

        self.work = work
        self.warnings: list[str] = []
        notes: list[Any] = [] if work.group else work.assumptions  # an estimate has told both already
        self.intensity = bind_grid(values.get("grid"), folders, notes)
        self.pue = asked(values["pue"], "1", str(values["pue"])) if "pue" in values else work.cluster.systems.pue
        if "pue" not in values:
            assume(notes, "pue", self.pue.text, "default")
        self.household = load.record("ownership", "default", folders).household_energy
        self.network = float(values.get("network_power", 0.0))
        node, device = work.cluster.node, work.cluster.accelerator
        self.rated = device.tdp.value + node.host_power.value / node.accelerators.value
        self.record = load.record("power", device.name, folders) if device.name in load.names("power", folders) else None
        self.nodes: list[tuple[str, Any, str]] = []
        if "power" in values:
            self.nodes.append(("given", values["power"], "given in the question"))
        load_share = self._load(values)
        if self.record is not None:
            drawn = leaf(
                "node power", energy.power_at_load, "W", waiting_power=self.record.waiting, busy_power=self.record.busy, load=load_share
            )
            self.nodes.append(("measured", drawn, f"at {load_share:.0%} load, between runs that were measured"))
        else:
            self.warnings.append(f"nobody has published measured power of {device.name} nodes: rated power is an upper bound")
        self.nodes.append(("rated", self.rated, "board power and share of the node's limit: an upper bound"))
        if not self.network:
            self.warnings.append("power of switches is left out: give --network-power for each accelerator")

    def _load(self, values: Mapping[str, Any]) -> float:
        if "load" in values:
            return float(values["load"])
        if self.work.busy is None:
            assume(self.work.assumptions, "load", "1", "default")
            return 1.0
        return min(self.work.busy * self.work.useful / self.work.wall, 1.0)

    @property
    def drawn(self) -> float:
        """Best known power of one accelerator, its share of node and network in it [W]."""
        return one(getattr(self.nodes[0][1], "value", self.nodes[0][1])) + self.network

    def table(self, held: float) -> tuple[list[dict[str, Any]], list[Term]]:
        """Energy and carbon by each basis; terms of the first."""
        from ironlaw.law import energy

        rows: list[dict[str, Any]] = []
        terms: list[Term] = []
        for basis, node, note in self.nodes:
            watts = one(getattr(node, "value", node))
            power = leaf(
                "power", energy.cluster_power, "W", gpus=self.work.gpus, accelerator_power=watts,
                host_power_per_accelerator=self.network, pue=self.pue,
            )  # fmt: skip
            joules = leaf("energy", energy.energy, "J", power=one(power.value), seconds=held)
            carbon = leaf("carbon", energy.carbon, "kg", energy=one(joules.value), intensity=self.intensity)
            months = leaf("household months", energy.household_months, "1", energy=one(joules.value), household_energy=self.household)
            rows.append({
                "basis": basis, "node": watts, "network": self.network, "pue": self.pue.value, "energy": one(joules.value),
                "carbon": one(carbon.value), "carbon_t": one(carbon.value) / 1e3, "household_months": one(months.value), "note": note,
            })  # fmt: skip
            if not terms:
                terms = [*([node] if isinstance(node, Term) else []), power, joules, carbon, months]
        return rows, terms

    def measured(self) -> list[Table]:
        """The runs that the measured power stands on."""
        if self.record is None:
            return []
        columns = (Column("run", "run"), Column("gpus", "GPUs", "1"), Column("gpu_hours", "GPU-hours", "1"), Column("power", "power", "W"))
        rows = [
            {"run": r.run, "gpus": r.gpus.value, "gpu_hours": r.accelerator_time.value / 3600.0, "power": r.power.value}
            for r in self.record.row
        ]
        return [Table("measured_power", "Measured power of nodes, for each accelerator, without the building", columns, rows)]
