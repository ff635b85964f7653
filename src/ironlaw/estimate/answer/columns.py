"""The columns of an estimate as a table: what was asked, the plan, memory, step, rates and the run, one row for each row asked."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from ironlaw.estimate.answer.as_data import bound_data, plan_data, run_data
from ironlaw.estimate.answer.bands import step_band
from ironlaw.estimate.answer.term_data import number

if TYPE_CHECKING:
    from ironlaw.estimate.answer.group import Group

_PLAN = (
    "model", "accelerator", "gpus", "node", "framework", "precision", "global_batch_size", "micro_batch_size", "seq_len", "tp", "pp",
    "vpp", "cp", "ep", "dp", "zero", "recompute",
)  # fmt: skip
_RATES = ("tokens_per_second", "tokens_per_second_per_gpu", "mfu")
_RUN = ("days", "gpu_hours", "usd", "kwh", "kg_co2e", "days_with_failures", "usd_with_failures", "goodput")
UNITS = {
    "device_bytes": "B", "capacity_bytes": "B", "step_seconds": "s", "band_low_seconds": "s", "band_high_seconds": "s",
    "tokens_per_second": "token/s", "tokens_per_second_per_gpu": "token/s", "seq_len": "token", "days": "d", "days_with_failures": "d",
    "gpu_hours": "h", "usd": "USD", "usd_with_failures": "USD", "kwh": "kWh", "kg_co2e": "kg",
}  # fmt: skip


def estimate_row(group: Group, at: int) -> dict[str, Any]:
    """One row of a group as the cells of a table; None for what has no value. The run's cells are there where tokens were given."""
    plan, legal = plan_data(group, at), bool(number(group.legal, at))
    step = number(group.step.tree.value, at) if legal else None
    low, high, *_ = (None if step is None else step_band(group, at, step)) or (None, None)
    run = run_data(group, at)
    return {
        **{name: plan[name] for name in _PLAN},
        "legal": legal,
        "fits": legal and bool(number(group.memory.fits, at)),
        "device_bytes": number(group.memory.device, at) if legal else None,
        "capacity_bytes": group.memory.capacity,
        "step_seconds": step,
        "band_low_seconds": low,
        "band_high_seconds": high,
        **{name: number(group.throughput[name].value, at) if legal else None for name in _RATES},
        "bound": bound_data(group, at, step is None)["by"],
        **({} if run is None else {name: run[name] for name in _RUN}),
    }


def rows_by_column(places: Iterable[tuple[Group, int]]) -> dict[str, list[Any]]:
    """The cells of rows, each a place in a group, by column."""
    rows = [estimate_row(group, at) for group, at in places]
    names = dict.fromkeys(name for row in rows for name in row)
    return {name: [row.get(name) for row in rows] for name in names}
