"""Sentences and a table on a measured throughput: its MFU by every convention, the loss, and what could explain it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ironlaw import units
from ironlaw.estimate.what_if.measured_run import MeasuredRun, mfu_words
from ironlaw.questions.answer import Column, Table, filled_columns

SUSPECTS = (
    Column("part", "part of the step"), Column("takes", "predicted", "s"), Column("would_take", "needed", "s"),
    Column("times", "times", "1"),
    Column("fault", "usual fault"), Column("with_fault", "step with it", "s"), Column("explains", "of the difference", "%"),
    Column("check", "what to check"),
)  # fmt: skip


def describe_measured(run: MeasuredRun) -> list[str]:
    """The measured rate with its MFUs, the predicted one with its band, and the loss."""
    return describe_data(run.data())


def describe_data(run: Mapping[str, Any]) -> list[str]:
    """The same from the JSON of a measured run."""
    step = units.show(run["measured_seconds"], "s", 4)
    sentences = [f"measured {run['tokens_per_second']:,.0f} tokens/s, a step of {step}: {mfu_words(run, 2)}"]
    if run["of_peak"] > 1.0:
        wrong = "the rate, the number of accelerators, the model or the precision"
        return [*sentences, f"impossible: {run['of_peak']:.3g} times the peak by the operations of this plan; check {wrong}"]
    predicted = mfu_words(run, of="predicted_")
    step, band = units.show(run["predicted_seconds"], "s", 4), run["predicted_band_tokens_per_second"]
    between = "" if band is None else f" (band {band[0]:,.0f} to {band[1]:,.0f})"
    sentences.append(f"predicted {run['predicted_tokens_per_second']:,.0f} tokens/s{between}, a step of {step}: {predicted}")
    share = run["of_predicted"]
    where = {None: "", True: ", within the band", False: ", outside the band"}[run["inside_band"]]
    loss = f"{1.0 - share:.1%} are lost" if share < 1.0 else "nothing is lost"
    return [*sentences, f"the run reaches {share:.1%} of the predicted throughput{where}: {loss}"]


def tabulate_suspects(rows: Sequence[Mapping[str, Any]]) -> Table:
    """The parts of a step that could explain the difference, the most likely first; ``rows`` as in the JSON of a measured run."""
    title = "What could explain the difference: each part as long as it would have to be alone; first the faults that come nearest"
    return Table("suspects", title, filled_columns(SUSPECTS, rows), rows)
