"""Number formats: their range and precision, their use in training, and the accelerators that multiply them."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from ironlaw.catalog import load
from ironlaw.cautions.record import Sentence
from ironlaw.cautions.table import caution
from ironlaw.estimate.bind.cluster import bind_precision
from ironlaw.law import formats as law
from ironlaw.questions.answer import Answer, Column, Table
from ironlaw.terms import Term, leaf


@dataclass(frozen=True)
class Format:
    """A number format by its bits."""

    name: str
    exponent_bits: float
    mantissa_bits: float
    infinities: float  # 1: the top exponent is reserved for infinities and NaN (IEEE 754)
    nan_code: float  # 1: only the last code is NaN
    size: float  # bytes in memory
    peak: str  # the catalogue's name of its dense rate
    use: str
    scaled: str  # the tensors that need a scale


FORMATS = (
    Format("fp32", 8, 23, 1, 0, 4.0, "fp32", "master weights, optimizer states, sums, losses", "no"),
    Format("tf32", 8, 10, 1, 0, 4.0, "tf32", "operands of products, stored as fp32", "no"),
    Format("bf16", 8, 7, 1, 0, 2.0, "bf16", "weights, activations, gradients", "no: the range of fp32"),
    Format("fp16", 5, 10, 1, 0, 2.0, "fp16", "weights, activations, gradients", "of the loss"),
    Format("fp8 E4M3", 4, 3, 0, 1, 1.0, "fp8", "operands of forward products", "of a tensor, row or block"),
    Format("fp8 E5M2", 5, 2, 1, 0, 1.0, "fp8", "gradients in products", "of a tensor, row or block"),
    Format("fp4 E2M1", 2, 1, 0, 0, 0.5, "nvfp4", "operands of products", "of a block of 16 (nvfp4) or 32 (mxfp4)"),
)
COLUMNS = (
    Column("format", "format"), Column("exponent", "exponent bits", "1"), Column("mantissa", "mantissa bits", "1"),
    Column("largest", "largest", "1"), Column("normal", "least normal", "1"), Column("subnormal", "least subnormal", "1"),
    Column("digits", "decimal digits", "1"), Column("size", "bytes", "1"), Column("stored", "used for"), Column("scale", "scale"),
    Column("devices", "accelerators"),
)  # fmt: skip


def table(values: dict[str, Any], folders: tuple[str, ...]) -> Answer:
    """The formats, and their dense rates on every accelerator of the catalogue, or on the given one."""
    asked = [values["on"]] if "on" in values else load.names("accelerators", folders)
    devices = [load.record("accelerators", name, folders) for name in asked]
    terms: list[Term] = []
    rows: list[dict[str, Any]] = []
    for fmt in FORMATS:
        bits = {"exponent_bits": fmt.exponent_bits, "mantissa_bits": fmt.mantissa_bits}
        top = leaf(f"largest {fmt.name}", law.largest, "1", **bits, infinities=fmt.infinities, nan_code=fmt.nan_code)
        normal = leaf(f"least normal {fmt.name}", law.least_normal, "1", exponent_bits=fmt.exponent_bits)
        least = leaf(f"least subnormal {fmt.name}", law.least_subnormal, "1", **bits)
        terms += [top, normal, least]
        supporting = [device.name for device in devices if fmt.peak in device.peak]
        rows.append({
            "format": fmt.name, "exponent": fmt.exponent_bits, "mantissa": fmt.mantissa_bits, "largest": float(top.value),
            "normal": float(normal.value), "subnormal": float(least.value),
            "digits": round(float(law.decimal_digits(fmt.mantissa_bits)), 1),
            "size": fmt.size, "stored": fmt.use, "scale": fmt.scaled, "devices": f"{len(supporting)} of {len(devices)}",
        })  # fmt: skip
    peaks = tuple(dict.fromkeys(fmt.peak for fmt in FORMATS))
    rates = []
    for device in devices:
        chosen = bind_precision(device.name, folders)
        peak = {name: device.peak[name].value if name in device.peak else None for name in peaks}
        scaling = "of the loss" if chosen == "fp16" else "no"
        rates.append({"accelerator": device.name, **peak, "chosen": chosen, "loss_scaling": scaling})
    by_format = {row["format"]: row for row in rows}
    scale = leaf("loss scale of fp16", law.loss_scale, "1", largest=by_format["fp16"]["largest"], gradient=1.0)
    terms.append(scale)
    power = float(scale.value)
    texts = (
        f"the largest fp16 number is {by_format['fp16']['largest']:,.0f}: larger activations or gradients become infinite; bf16 reaches "
        f"{by_format['bf16']['largest']:.3g}",
        f"the least fp16 number is {by_format['fp16']['subnormal']:.3g}: smaller gradients become zero, so the loss is scaled up; bf16"
        f" reaches {by_format['bf16']['subnormal']:.3g}, fp32 {by_format['fp32']['subnormal']:.3g}",
        f"a loss of up to 1 allows a scale of 2^{math.log2(power):.0f}, which keeps gradients from "
        f"{by_format['fp16']['subnormal'] / power:.2g}; a dynamic scale is halved at each overflow",
        f"in the OCP definition the largest E4M3 number is {by_format['fp8 E4M3']['largest']:g}, the largest E5M2 number"
        f" {by_format['fp8 E5M2']['largest']:,.0f}",
    )
    told = (
        ("largest", {name: by_format[name]["largest"] for name in ("fp16", "bf16")}),
        ("least", {name: by_format[name]["subnormal"] for name in ("fp16", "bf16", "fp32")}),
        ("loss-scale", {"scale": power}),
        ("fp8", {"e4m3": by_format["fp8 E4M3"]["largest"], "e5m2": by_format["fp8 E5M2"]["largest"]}),
    )
    headline = [Sentence(text, code, values) for text, (code, values) in zip(texts, told, strict=True)]
    shown = tuple(
        c if c.key not in ("largest", "normal", "subnormal") else Column(f"{c.key}_text", c.title) for c in COLUMNS
    )  # as text such as 3.4e+38, as the page would print all digits
    for row in rows:
        row |= {f"{key}_text": _text(row[key]) for key in ("largest", "normal", "subnormal")}
    chosen_columns = (Column("chosen", "default precision"), Column("loss_scaling", "scale"))
    columns = (Column("accelerator", "accelerator"), *(Column(peak, peak, "FLOP/s") for peak in peaks), *chosen_columns)
    warnings = [caution("fnuz-formats")] if {"mi300x", "mi325x"} & {device.name for device in devices} else []
    return Answer(
        title="Number formats",
        headline=headline,
        tables=(Table("formats", "Range and precision", shown, rows), Table("rates", "Dense rates", columns, rates)),
        terms=terms,
        warnings=warnings,
        folders=folders,
    )


def _text(value: float) -> str:
    return f"{value:,g}" if 0.001 <= value < 1e6 else f"{value:.3g}"
