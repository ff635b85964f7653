"""Flash and standard attention: the bytes and FLOPs of each, and the times of measured kernels."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from ironlaw import units
from ironlaw.estimate.answer.estimate import estimate
from ironlaw.estimate.layer.attention import FLASH_BACKWARD_FLOP, FLASH_KERNELS, UNFUSED_BACKWARD_FLOP, UNFUSED_KERNELS
from ironlaw.law import traffic
from ironlaw.precision import PRECISIONS
from ironlaw.questions.answer import Column, Table
from ironlaw.questions.roofline import operators, roofs
from ironlaw.questions.roofline.operators import Operator
from ironlaw.questions.roofline.roofs import Device, RooflinePoint, show
from ironlaw.terms import Term, leaf, plain, scalar, total

VERSIONS = ("flash-1", "flash-2", "flash-3")
COLUMNS = (
    Column("length", "tokens", "1"), Column("version", "kernel"), Column("forward", "forward", "s"), Column("backward", "backward", "s"),
    Column("rate", "rate, both", "FLOP/s"), Column("share", "of the peak", "%"), Column("times", "speed-up over unfused", "1"),
)  # fmt: skip


def asked_shapes(values: Mapping[str, Any]) -> list[tuple[float, ...]]:
    """The shapes of the options: one, or one for each of ``lengths``."""
    batch, heads, seq_len, width = values["attention"]
    return [(batch, heads, length, width) for length in values.get("lengths", (seq_len,))]


def with_expected_times(
    device: Device, points: list[RooflinePoint], values: Mapping[str, Any], folders: tuple[str, ...]
) -> list[RooflinePoint]:
    """Each point with its time in the estimate of a layer of its shape."""
    if device.cluster is None or "peak" in values or "bandwidth" in values:
        return points
    flash_counted = values.get("causal", True) and device.cluster.accelerator.flash_attention  # estimates count a causal mask
    return [replace(point, expected=_expected_time(point.operator, flash_counted, values, folders)) for point in points]


def _expected_time(operator: Operator, flash_counted: bool, values: Mapping[str, Any], folders: tuple[str, ...]) -> Term | None:
    """The time of the kernel in an estimate; None for formats and masks that it does not count."""
    flash = operator.name.startswith("flash")
    if operator.dtype not in ("bf16", "fp16") or (flash and not flash_counted):
        return None
    tree = _estimate_layer(operator.shape, operator.dtype, values, folders, "" if flash else "standard")
    return total("expected time", [_as_scalar(tree[f"forward/{name}"]) for name in (FLASH_KERNELS if flash else UNFUSED_KERNELS)])


def _estimate_layer(shape: tuple[float, ...], dtype: str, values: Mapping[str, Any], folders: tuple[str, ...], kernel: str) -> Term:
    """The step of one layer of that shape: with the device's flash kernel, a generation of it, or ``standard`` attention."""
    batch, heads, seq_len, width = shape
    model = {
        "hidden_size": heads * width,
        "num_attention_heads": heads,
        "num_key_value_heads": values.get("kv_heads", heads),
        "head_dim": width,
        "num_hidden_layers": 1,
        "vocab_size": 1,
    }
    options: dict[str, Any] = {name: values[name] for name in ("node", "fabric", "framework") if name in values}
    options |= {"gpus": 1, "micro_batch_size": batch, "global_batch_size": batch, "seq_len": seq_len, "precision": dtype}
    options |= {"flash_attention": kernel != "standard"} | ({"attention_kernel": kernel} if kernel in VERSIONS else {})
    return estimate(model, on=values["on"], catalog=folders, **options).groups[0].step.tree


def _as_scalar(term: Term) -> Term:
    """A leaf with numbers in place of columns of length one."""
    inputs = {name: item.item() if hasattr(item, "item") and item.size == 1 else item for name, item in term.inputs.items()}
    return Term(term.name, scalar(term), term.unit, term.law, inputs)


def compare_versions(device: Device, values: Mapping[str, Any], folders: tuple[str, ...]) -> list[Table]:
    """Generations of the flash kernel and the unfused one, by the estimate's constants; for causal attention only, as it counts."""
    if device.cluster is None or not device.cluster.accelerator.flash_attention or not values.get("causal", True) or "peak" in values:
        return []
    dtype = values["dtype"][0]
    if dtype not in ("bf16", "fp16") or "bandwidth" in values or "batch" in values:
        return []
    peak, rows = plain(device.peaks[PRECISIONS[dtype].peak]), []
    for shape in asked_shapes(values):
        flop = scalar(operators.make_operators("attention", shape, values)[0].flop) * (1.0 + FLASH_BACKWARD_FLOP)
        times: dict[str, tuple[float, float]] = {}
        for version in ("standard", *VERSIONS):
            tree = _estimate_layer(shape, dtype, values, folders, version)
            names = UNFUSED_KERNELS if version == "standard" else FLASH_KERNELS
            forward, backward = (sum(scalar(tree[f"{way}/{name}"]) for name in names) for way in ("forward", "backward"))
            if (forward, backward) not in times.values():  # a device without this generation uses the generation before
                times[version] = (forward, backward)
        for version, (forward, backward) in times.items():
            rate = None if version == "standard" else flop / (forward + backward)
            rows.append({
                "length": shape[2], "version": "unfused" if version == "standard" else version, "forward": forward, "backward": backward,
                "rate": rate, "share": None if rate is None else rate / peak, "times": sum(times["standard"]) / (forward + backward),
            })  # fmt: skip
    return [Table("versions", "Kernels by the estimate's constants", COLUMNS, rows)]


def compare_kernels(device: Device, points: list[RooflinePoint], values: Mapping[str, Any]) -> tuple[list[str], list[Term], dict[str, Any]]:
    """Headline, terms and values of the last shape: stored scores, bytes, FLOPs, and the published bound of the traffic."""
    flash, standard = points[-2:]
    batch, heads, seq_len, width = flash.operator.shape
    size = operators.element_bytes(flash.operator.dtype)
    scores = leaf("stored scores", traffic.elementwise, "B", elements=batch * heads * seq_len**2, bytes_per_element=size, passes=1.0)
    rows = batch * heads * seq_len * width
    inputs = leaf("queries, keys, values", traffic.elementwise, "B", elements=rows, bytes_per_element=size, passes=3.0)
    memory = leaf("scores over inputs", _ratio, "1", standard=scores.value, flash=inputs.value)
    less = leaf("bytes, standard over flash", _ratio, "1", standard=standard.operator.traffic.value, flash=flash.operator.traffic.value)
    more = (1.0 + FLASH_BACKWARD_FLOP) / (1.0 + UNFUSED_BACKWARD_FLOP) - 1.0
    terms = [term.named(f"{term.name}, {point.operator.name}") for point in (flash, standard) for term in (point.intensity, point.least)]
    terms += [scores, inputs, memory, less]
    lines = [
        "; ".join(f"{p.operator.name}: {p.bound}-bound at {show(p.intensity)}, at least {show(p.least)}" for p in (flash, standard)),
        f"standard attention stores scores of {show(scores)}, {scalar(memory):.3g} times its queries, keys and values "
        f"({show(inputs)}); flash stores none",
        f"standard attention moves {scalar(less):.3g} times the bytes of an ideal flash kernel; "
        "the ratio grows with sequence length over head width",
        f"over forward and backward flash does {more:.1%} more FLOPs on the same mask: backward computes the scores again",
    ]
    if "on_chip" in values:
        elements = values["on_chip"] / size
        bound = leaf("elements of a head", traffic.tiled_attention, "1", seq_len=seq_len, head_dim=width, on_chip_elements=elements)
        ratio = leaf("published ratio", _ratio, "1", standard=seq_len * width + seq_len**2, flash=bound.value)
        terms += [bound, ratio]
        lines.append(f"with {elements:,.0f} elements on chip and no cache behind them the published bound is {scalar(ratio):.3g} times")
    if flash.operator.measured is not None:
        verdict = roofs.judge(device, flash, flash.operator.measured)
        lines.append(f"flash measured {units.show(flash.operator.measured, 's', 4)}: {verdict.text}")
        terms += roofs.roof_fractions(flash, flash.operator.measured).values()
    return lines, terms, {"more_flop": more}


def _ratio(standard: Any, flash: Any) -> Any:
    """Standard over flash: ``standard / flash``."""
    return standard / flash
