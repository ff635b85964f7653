"""What a comparison names and asks for: its accelerators, values by accelerator, counts and targets, and rates that none can reach."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ironlaw import units
from ironlaw.catalog import load
from ironlaw.errors import QuestionError, UnknownNameError, ValueRangeError
from ironlaw.estimate.layer.counts import active_parameters, total_parameters
from ironlaw.law.flops import per_token
from ironlaw.questions.compare.candidates import Hardware
from ironlaw.terms import plain


def accelerators_of(values: Mapping[str, Any], folders: tuple[str, ...]) -> tuple[str, ...]:
    """The full names of the accelerators of a question."""
    on = tuple(load.resolve("accelerators", name, folders) for name in values["on"])
    if len(set(on)) < len(on):
        raise QuestionError(f"--on names an accelerator twice: {', '.join(on)}")
    if "node" in values and len(on) > 1:
        raise QuestionError("--node is of one accelerator, --on names several: compare them one by one, or leave it out")
    return on


def by_full_name(given: dict[str, Any], option: str, on: tuple[str, ...], folders: tuple[str, ...]) -> dict[str, Any]:
    """Values by the accelerators' full names; a value without a name applies to all."""
    values: dict[str, Any] = {}
    for name, value in given.items():
        full = load.resolve("accelerators", name, folders) if name else ""
        if full and full not in on:
            raise UnknownNameError(f"accelerator of --{option}", name, on)
        values |= {full: value} if full else dict.fromkeys(on, value)
    return values


def say_model(model: Any) -> str:
    """The model with its parameters."""
    total, active = float(total_parameters(model)), float(active_parameters(model))
    routed = f", {units.show(active, 'parameter').removesuffix(' parameters')} active" if active != total else ""
    return f"{model.title} ({units.show(total, 'parameter')}{routed})"


def asked_of(values: Mapping[str, Any]) -> list[tuple[float | None, float | None]]:
    """Counts and targets, one of which may be a list: a row of every accelerator and framework for each."""
    counts, targets = values.get("gpus", (None,)), values.get("target_tokens_per_second", (None,))
    return [(count, target) for count in counts for target in targets]


def refuse_above_peak(hardware: Sequence[Hardware], asked: Sequence[tuple[float | None, float | None]], active: float) -> None:
    """Refuse a question in which every rate is above the peak of every accelerator."""
    why = [_above_peak(count, target, active, one) for count, target in asked for one in hardware]
    if all(why):
        raise ValueRangeError(why[0])


def _above_peak(gpus: float | None, target: float | None, active: float, hardware: Hardware) -> str:
    """Why a rate is above what so many accelerators reach at their peak; empty where it is not."""
    if not (gpus and target):
        return ""
    most = gpus * max(hardware.dense_peak, plain(hardware.device.peak)) / float(per_token(active))
    if target <= most:
        return ""
    return (
        f"--target-tokens-per-second {target:g} is too high: {gpus:g} x {hardware.name} reach at most {most:,.0f} at their peak:"
        " give more --gpus"
    )
