"""Bytes that each optimizer stores and moves per parameter."""

from __future__ import annotations

from typing import Any

from ironlaw.law.states import OPTIMIZERS
from ironlaw.questions.answer import Answer, Column, Table

COLUMNS = (
    Column("optimizer", "optimizer"), Column("states", "states", "1"), Column("master", "master", "1"), Column("static", "all static", "1"),
    Column("traffic", "traffic per step", "1"), Column("source", "source"),
)  # fmt: skip


def table(_values: dict[str, Any], folders: tuple[str, ...]) -> Answer:
    """What each optimizer stores and moves; no option changes it."""
    rows = [
        {
            "optimizer": name,
            "states": optimizer.state_bytes,
            "master": optimizer.master_bytes,
            "static": 4.0 + optimizer.state_bytes + optimizer.master_bytes,
            "traffic": optimizer.traffic_bytes,
            "source": optimizer.source.partition(",")[0],
        }
        for name, optimizer in OPTIMIZERS.items()
    ]
    headline = ["sharding divides states and master weights by the ranks that share them (ZeRO 1)"]
    tables = (Table("optimizers", "Bytes per parameter, with 2-byte weights and gradients", COLUMNS, rows),)
    return Answer("Optimizers", headline, tables, folders=folders)
