"""The tables of a comparison, the answer first."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import Any

from ironlaw.questions.answer import Column, Table, filled_columns
from ironlaw.questions.compare.candidates import Candidate, Hardware
from ironlaw.questions.remedies import REMEDIES


def tables(candidates: Sequence[Candidate], values: dict[str, Any]) -> list[Table]:
    """The answer, why rows answer no, the run, plans, memory, the network and storage, and launch flags."""
    rows = [candidate.row() for candidate in candidates]
    run = any(candidate.run for candidate in candidates)
    answer = (*_KEY, _ANSWER, *_RATE, *(_RUN_SHORT if run else ()), *_COST) if run else (*_KEY, _ANSWER, *_RATE, *_COST, *_RENT)
    fed = (Column("gpus_under_power_limit", "most under the limit", "1"),) if "power_limit" in values else ()
    answered = [row for row in rows if row.get("tokens_per_second") is not None]
    listed = [
        Table("estimate", "The answer: each accelerator with its best plan", columns_of((*answer, *fed), rows), rows),
        Table(
            "refused",
            "Why a row answers no, and the nearest counts that work",
            columns_of(_REFUSED, rows),
            [r for r in rows if "why_not" in r],
        ),
        Table("run", _run_title(values), columns_of(_RUN, answered), answered if run else []),
        Table("plans", "Plans", columns_of(_PLANS, rows), [row for row in rows if "plan" in row]),
        Table("memory", "Memory, and shares of the step", columns_of(_MEMORY, rows), [row for row in rows if "memory_share" in row]),
        Table(
            "network",
            "Switches and cables between nodes",
            columns_of(_NETWORK, answered),
            answered,
            on_page=bool(_OF_NETWORK & set(values)),
        ),
        Table("storage", _STORAGE_TITLE, columns_of(_STORAGE, answered), answered, on_page="checkpoints_kept" in values),
    ]
    flags = [
        {"accelerator": c.hardware.name, "gpus": c.planned.gpus if c.planned else None, **line} for c in candidates for line in c.flags
    ]
    listed[1:] = [_own_cells(table) for table in listed[1:]]
    return [*listed, Table("flags", "Launch flags of each plan", _FLAGS, flags, on_page="framework" in values)]


def _own_cells(table: Table) -> Table:
    """A table whose rows have the cells of its columns alone: the first table has all of a row, and no other says it again."""
    keys = [*(column.key for column in table.columns), *(("nearest_gpus",) if table.name == "refused" else ())]
    return replace(table, rows=[{key: row[key] for key in keys if key in row} for row in table.rows])


def _run_title(values: dict[str, Any]) -> str:
    """The title of the table of runs."""
    return "The whole run, with failures and checkpoints; energy at rated power with PUE, " + (
        "switches counted" if "network_power" in values else "switches not counted"
    )


def price_table(hardware: Sequence[Hardware]) -> Table:
    """Prices of the hardware, the cheapest first, with provider, term and date."""
    rows = sorted((one.row() for one in hardware), key=lambda row: (not row["usd_per_gpu_hour"] >= 0, row["usd_per_gpu_hour"]))
    return Table("prices", "Prices of the hardware", filled_columns(_PRICES, rows), rows)


def fixes(bounds: Collection[str]) -> Table:
    """What helps against every bound of the rows."""
    rows = [{"bound": bound, "helps": helps} for bound, helps in REMEDIES.items() if bound in bounds]
    return Table("fixes", "What helps", (Column("bound", "bound by"), Column("helps", "what helps")), rows)


def columns_of(columns: tuple[Column, ...], rows: Sequence[dict[str, Any]]) -> tuple[Column, ...]:
    """The columns without those that no row has, but of keys that are always shown."""
    filled = filled_columns(columns, rows)
    return tuple(column for column in columns if column in filled or column.key in _ALWAYS)


_OF_NETWORK = {"network_power", "network", "oversubscription", "power_limit"}  # options that ask for switches and cables
_STORAGE_TITLE = "Storage of checkpoints; the rate needed is that at which writing them takes 1% of the time"
_ALWAYS = ("accelerator", "gpus", "tokens_per_second", "mfu", "bound", "answer")
_NAME, _FRAMEWORK, _GPUS = Column("accelerator", "accelerator"), Column("framework", "framework"), Column("gpus", "GPUs", "1")
_KEY = (_NAME, _FRAMEWORK, _GPUS)
_ANSWER = Column("answer", "answer")
_RATE = (
    Column("tokens_per_second", "tokens/s", "1"), Column("tokens_per_second_low", "from", "1"), Column("tokens_per_second_high", "to", "1"),
    Column("mfu", "MFU", "%"), Column("bound", "bound"),
)  # fmt: skip
_RUN_SHORT = (
    Column("days_with_failures", "days", "1"), Column("usd_with_failures", "USD", "USD"), Column("carbon_with_failures", "t CO2e", "1"),
)  # fmt: skip
_COST = (Column("power", "power", "W"), Column("usd_per_million_tokens", "USD/M tokens", "1"))
_RENT = (Column("usd_per_hour", "USD/h", "USD"),)
_REFUSED = (*_KEY, Column("why_not", "why"))
_RUN = (
    *_KEY, Column("days_with_failures", "days", "1"), Column("days_low", "from", "1"), Column("days_high", "to", "1"),
    Column("gpu_hours_with_failures", "GPU-hours", "1"), Column("usd_with_failures", "USD", "USD"), Column("usd_low", "from", "USD"),
    Column("usd_high", "to", "USD"), Column("mwh_with_failures", "MWh", "1"), Column("carbon_with_failures", "t CO2e", "1"),
    Column("days", "days, no failures", "1"), Column("usd", "USD, no failures", "USD"),
)  # fmt: skip
_PLANS = (*_KEY, Column("batch_tokens", "batch", "token"), Column("plan", "plan"))
_MEMORY = (
    *_KEY, Column("memory_share", "memory", "%"), Column("memory_free", "free", "B"), Column("fits_probability", "likely to fit", "%"),
    Column("hbm_share", "HBM share", "%"), Column("network_share", "network share", "%"), Column("cluster_hbm", "cluster HBM", "B/s"),
)  # fmt: skip
_NETWORK = (
    *_KEY, Column("fabric", "fabric"), Column("endpoints", "NICs", "1"), Column("leaf_switches", "leaf", "1"),
    Column("spine_switches", "spine", "1"), Column("core_switches", "core", "1"), Column("switches", "switches", "1"),
    Column("cables", "cables", "1"), Column("switch_power", "switch power", "W"), Column("network_note", "wiring"),
)  # fmt: skip
_STORAGE = (
    *_KEY, Column("checkpoint_bytes", "checkpoint", "B"), Column("checkpoints_bytes", "all kept", "B"),
    Column("write_rate_needed", "rate needed", "B/s"), Column("write_rate", "rate assumed", "B/s"),
)  # fmt: skip
_FLAGS = (_NAME, _GPUS, _FRAMEWORK, Column("file", "where"), Column("flags", "flags"))
_PRICES = (
    _NAME, Column("usd_per_gpu_hour", "USD/GPU-h", "1"), Column("usd_per_tbs_hour", "USD/h per TB/s", "1"),
    Column("usd_per_pflops_hour", "USD/h per PFLOP/s", "1"), Column("machine_balance", "balance, FLOP/B", "1"),
    Column("price_provider", "provider"), Column("price_term", "term"), Column("price_date", "date"),
)  # fmt: skip
