"""Find signs that a measured step and an estimate are not of the same run; each is a warning."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from ironlaw.catalog import load
from ironlaw.cautions.record import Caution
from ironlaw.cautions.table import caution
from ironlaw.errors import UnknownNameError

if TYPE_CHECKING:
    from ironlaw.measure.versus.compare import Measured
    from ironlaw.measure.versus.predicted import Predicted

OF_CONVOLUTION = 0.05  # of the measured step; in transformers convolutions take a few thousandths
OF_RECOMPUTE = 0.03  # of the compute time; a smaller difference may come from how kernels are classified
FEWEST_STEPS = 3  # with fewer, an unusual step changes the median
NUMERATORS_AGREE = 0.02  # FLOPs counted from sizes and from the formula differ by about a percent
STAGES_AGREE = 0.5  # between one pipeline stage and the mean of all: with few layers, the output layer may be half of a stage


def find_mismatches(measured: Measured, predicted: Predicted, expected: float) -> list[Caution]:
    """Warnings that the two differ, or that the comparison rests on assumptions; ``expected`` is the predicted compute time [s]."""
    warnings = [
        _check_device(measured, predicted),
        _check_world(measured, predicted),
        _check_layers(measured, predicted),
        _check_microbatches(measured, predicted),
        _check_transformer(measured, predicted),
        _check_recompute(measured, predicted, expected),
        _check_utilisation(measured, predicted),
        _check_steps(measured),
        _check_stage(measured, predicted),
        _check_assumptions(predicted),
        predicted.unfit,
    ]
    return [line for line in warnings if line is not None]


def same_device(name: str, accelerator: str) -> bool | None:
    """Whether the device name in a file can be this accelerator of the catalogue; None if the file has no name.

    >>> same_device("NVIDIA A100-SXM4-40GB", "a100-sxm-40gb"), same_device("NVIDIA A100-SXM4-40GB", "a100-sxm-80gb")
    (True, False)
    >>> same_device("NVIDIA H100 80GB HBM3", "h100-sxm"), same_device("Tesla V100-SXM2-32GB", "h100-sxm"), same_device("", "h100-sxm")
    (True, False, None)
    """
    if not name.strip():
        return None
    try:
        return load.resolve("accelerators", name) == accelerator
    except UnknownNameError:
        words, accelerator_words = load.fold_name(name).split("-"), load.fold_name(accelerator).split("-")
    family = next((word for word in accelerator_words if re.search(r"\d", word)), accelerator_words[0])
    sizes, room = ({w for w in name_words if re.fullmatch(r"\d+gb", w)} for name_words in (words, accelerator_words))
    if family == "gh200":  # its name includes the memory of the CPU
        sizes = set()
    if {"sxm", "pcie"} & set(accelerator_words) and ("pcie" in words) != ("pcie" in accelerator_words):
        return False
    return family in words and not (sizes and room and sizes != room)


def same_work(measured: Measured, predicted: Predicted) -> bool:
    """Whether the device and the number of accelerators agree, as far as known."""
    return same_device(measured.device, predicted.plan["accelerator"]) is not False and not _check_world(measured, predicted)


def _check_device(measured: Measured, predicted: Predicted) -> Caution | None:
    """Warn where the devices differ or the measured one is unknown."""
    accelerator = predicted.plan["accelerator"]
    agrees = same_device(measured.device, accelerator)
    if agrees is None:
        return caution("no-device-name", accelerator=accelerator)
    return None if agrees else caution("not-the-same-device", device=measured.device[:80], accelerator=accelerator)


def _check_world(measured: Measured, predicted: Predicted) -> Caution | None:
    """Warn where the numbers of accelerators differ."""
    gpus = int(predicted.plan["gpus"])
    if measured.world_size is None or measured.world_size == gpus:
        return None
    return caution("not-the-same-gpus", measured=measured.world_size, predicted=gpus)


def _check_layers(measured: Measured, predicted: Predicted) -> Caution | None:
    """Warn if the layers differ. Pipeline stages may differ by one layer."""
    allowed = 0.0 if predicted.stage == "only" else 1.0
    if measured.layers is None or not predicted.layers or abs(measured.layers - predicted.layers) <= allowed:
        return None
    return caution("not-the-same-layers", measured=measured.layers, predicted=predicted.layers)


def _check_microbatches(measured: Measured, predicted: Predicted) -> Caution | None:
    """Warn where the numbers of micro-batches differ."""
    count = predicted.plan["num_microbatches"]
    if measured.microbatches is None or measured.microbatches == count:
        return None
    return caution("not-the-same-micro-batches", measured=measured.microbatches, predicted=count)


def _check_transformer(measured: Measured, predicted: Predicted) -> Caution | None:
    """Warn where convolutions take so much time that the model is no transformer."""
    convolution_share = measured.parts.get("convolution", 0.0) / measured.step_seconds
    if convolution_share < OF_CONVOLUTION or "convolution and gates" in predicted.leaves:
        return None
    return caution("not-a-transformer", share=convolution_share)


def _check_recompute(measured: Measured, predicted: Predicted, expected: float) -> Caution | None:
    """Warn if the shares of recomputation in compute time differ; shares, so that slow kernels and waiting do not matter."""
    computed = measured.compute_seconds
    if measured.recompute_seconds is None or not (computed and expected):
        return None
    share, predicted_share = measured.recompute_seconds / computed, predicted.recompute_seconds / expected
    if abs(share - predicted_share) < OF_RECOMPUTE:
        return None
    aside = "" if share > predicted_share else " (a trace does not show products that compiled code recomputes)"
    return caution("not-the-same-recomputation", measured=share, predicted=predicted_share, aside=aside)


def _check_utilisation(measured: Measured, predicted: Predicted) -> Caution | None:
    """Warn if the MFUs differ. A pipeline stage and the whole plan agree less closely, so the limit is larger."""
    if measured.mfu is None or not predicted.rates.get("mfu"):
        return None
    if measured.mfu > 1.0:
        return caution("mfu-above-peak", mfu=measured.mfu)
    slower = predicted.seconds / measured.step_seconds
    mfu = predicted.rates.get(matching_mfu(measured, predicted)) or 0.0
    near = NUMERATORS_AGREE if predicted.stage in (None, "only") else STAGES_AGREE
    if not mfu or abs(measured.mfu / (mfu * slower) - 1.0) < near:
        return None
    return caution("mfu-counts-differently", measured=measured.mfu, predicted=mfu * slower)


def matching_mfu(measured: Measured, predicted: Predicted) -> str:
    """The MFU of an estimate that counts attention as the trace does: as computed under its mask, or as the full square.

    If the trace does not show this, the nearer of the two is taken.
    """
    slower = predicted.seconds / measured.step_seconds
    candidates = {name: rate * slower for name in ("mfu", "mfu_full_square") if (rate := predicted.rates.get(name))}
    if measured.causal is not None:
        return "mfu" if measured.causal else "mfu_full_square"
    traced = measured.mfu
    return min(candidates, key=lambda name: abs(candidates[name] - traced)) if traced is not None and candidates else "mfu"


def _check_steps(measured: Measured) -> Caution | None:
    if measured.steps is None or measured.steps >= FEWEST_STEPS:
        return None
    return caution("few-steps", steps=measured.steps, noun="step" if measured.steps == 1 else "steps")


def _check_stage(measured: Measured, predicted: Predicted) -> Caution | None:
    """Warn where the measured rank may be of another pipeline stage than the estimate describes."""
    if not measured.parts or predicted.stage in (None, "only"):
        return None
    compared = "" if measured.rank is None else f"rank {measured.rank} is compared, and "
    return caution("other-stage", stage=predicted.stage, compared=compared)


def _check_assumptions(predicted: Predicted) -> Caution | None:
    if not predicted.assumed:
        return None
    return caution("chosen-values", values=list(predicted.assumed[:12]))
