"""Sentences and a table on a measured throughput: its MFU in both conventions, the loss, and what could explain it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ironlaw import units
from ironlaw.estimate.measured import MFU_NAMES, MeasuredRun
from ironlaw.questions.answer import Column, Table, filled_columns
from ironlaw.terms import scalar

SUSPECTS = (
    Column("part", "part of the step"), Column("takes", "predicted", "s"), Column("would_take", "needed", "s"),
    Column("times", "times", "1"),
    Column("fault", "usual fault"), Column("with_fault", "step with it", "s"), Column("explains", "of the difference", "%"),
    Column("check", "what to check"),
)  # fmt: skip


def describe_measured(run: MeasuredRun) -> list[str]:
    """The measured rate with its MFUs, the predicted one with its band, and the loss."""
    measured = " and ".join(f"{name} {scalar(run.utilisation[key]):.2%}" for key, name in MFU_NAMES.items())
    sentences = [f"measured {run.rate:,.0f} tokens/s, a step of {units.show(run.step, 's', 4)}: {measured}"]
    if run.of_peak > 1.0:
        wrong = "the rate, the number of accelerators, the model or the precision"
        return [*sentences, f"impossible: {run.of_peak:.0%} of the peak by the operations of this plan; check {wrong}"]
    predicted = " and ".join(
        f"{name} {share:.1%}" for name, share in zip(MFU_NAMES.values(), run.predicted_utilisation.values(), strict=True)
    )
    band = (
        "" if run.rate_band is None or run.band is None else f" ({run.band[2]:.0%} band {run.rate_band[0]:,.0f} to {run.rate_band[1]:,.0f})"
    )
    sentences.append(f"predicted {run.predicted_rate:,.0f} tokens/s{band}, a step of {units.show(run.predicted, 's', 4)}: {predicted}")
    share = run.predicted / run.step
    where = {None: "", True: ", within the band", False: ", outside the band"}[run.inside]
    loss = f"{1.0 - share:.1%} are lost" if share < 1.0 else "nothing is lost"
    return [*sentences, f"the run reaches {share:.1%} of the predicted throughput{where}: {loss}"]


def tabulate_suspects(rows: Sequence[Mapping[str, Any]]) -> Table:
    """The parts of a step that could explain the difference, the most likely first; ``rows`` as in the JSON of a measured run."""
    title = "What could explain the difference: each part as long as it would have to be alone; first the faults that come nearest"
    return Table("suspects", title, filled_columns(SUSPECTS, rows), rows)
