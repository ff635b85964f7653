"""Operators with their FLOPs and least bytes as Terms."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from ironlaw.catalog import load
from ironlaw.errors import InputError, QuestionError, UnknownNameError
from ironlaw.files import read_csv, with_headers
from ironlaw.law import flops, masks, traffic
from ironlaw.precision import PRECISIONS
from ironlaw.question.readers import duration, whole
from ironlaw.questions.roofline.options import OPERATORS, OPTIONS
from ironlaw.terms import Term, leaf, total

GATED = ("swiglu", "geglu")


@dataclass(frozen=True, eq=False)
class Operator:
    """One operator. ``vector`` work runs on vector units; ``grid`` is the size of a matrix product's result, which is tiled."""

    name: str
    flop: Term
    traffic: Term
    dtype: str
    vector: bool = False
    grid: tuple[float, float] | None = None
    count: float = 1.0
    measured: float | None = None
    batch: float | None = None
    shape: tuple[float, ...] = ()  # of attention: batch, heads, sequence, head width


def element_bytes(dtype: str) -> float:
    """Bytes of an element of a format, with its share of the scales."""
    return PRECISIONS[dtype].operand_bytes


def tensor_bytes(name: str, elements: float, dtype: str) -> Term:
    """Bytes of a tensor that is read or written once."""
    return leaf(name, traffic.elementwise, "B", elements=elements, bytes_per_element=element_bytes(dtype), passes=1.0)


def make_operators(kind: str, shape: Any, values: Mapping[str, Any], batch: float = 1.0) -> list[Operator]:
    """The operators of a kind and shape: one; for attention two, flash and standard."""
    return MAKERS[kind](shape, values, batch)


def _dtypes(values: Mapping[str, Any]) -> tuple[str, str, str]:
    return values.get("dtype") or ("bf16", "bf16", "bf16")


def _make_gemm(shape: Any, values: Mapping[str, Any], batch: float) -> list[Operator]:
    """A matrix product, whose rows a batch multiplies."""
    (m, k, n), (a, b, c) = shape, _dtypes(values)
    m = m * batch
    result = element_bytes(c) * (2.0 if values.get("beta") else 1.0)  # C is read before it is added to
    moved = leaf("bytes", traffic.gemm, "B", m=m, n=n, k=k, bytes_a=element_bytes(a), bytes_b=element_bytes(b), bytes_c=result)
    computed = max((a, b), key=element_bytes)  # mixed operands compute in the wider format
    return [Operator(f"gemm {m:.0f} x {k:.0f} x {n:.0f}", leaf("FLOP", flops.gemm, "FLOP", m=m, n=n, k=k), moved, computed, grid=(m, n))]


def _make_attention(shape: Any, values: Mapping[str, Any], batch: float) -> list[Operator]:
    """Flash and standard attention of one shape: the same heads, different bytes."""
    b, heads, seq_len, width = shape
    b, dtype = b * batch, _dtypes(values)[0]
    kv = values.get("kv_heads", heads)
    if heads % kv:
        raise QuestionError(f"--kv-heads {kv:.0f} does not divide the {heads:.0f} heads of --attention")
    seen = float(masks.attended_length(seq_len, 0.0)) if values.get("causal", True) else seq_len
    core = {"batch": b, "seq_len": seq_len, "num_attention_heads": heads, "head_dim": width}
    size = element_bytes(dtype)
    flash = leaf("bytes", traffic.flash_attention, "B", **core, num_key_value_heads=kv, bytes_per_element=size)
    standard = leaf("bytes", traffic.unfused_attention, "B", **core, bytes_per_element=size, passes=4.0)
    return [
        Operator(
            f"{kernel} attention, {seq_len:.0f} tokens",
            leaf("FLOP", flops.attention_core, "FLOP", key_length=keys, **core),
            moved,
            dtype,
            shape=(b, heads, seq_len, width),
        )
        for kernel, keys, moved in (("flash", seen, flash), ("standard", seq_len, standard))
    ]


def _make_elementwise(shape: Any, values: Mapping[str, Any], batch: float) -> list[Operator]:
    """A softmax, norm or activation function."""
    name, rows, width = shape
    elements, dtype = rows * width * batch, _dtypes(values)[0]
    passes = values.get("passes", 3.0 if name in GATED else 2.0)  # a gate is a second tensor to read
    moved = leaf("bytes", traffic.elementwise, "B", elements=elements, bytes_per_element=element_bytes(dtype), passes=passes)
    flop = leaf("FLOP", flops.elementwise, "FLOP", elements=elements, operations=flops.OPERATIONS[name])
    return [Operator(f"{name} {rows * batch:.0f} x {width:.0f}", flop, moved, dtype, vector=True)]


def _make_softmax(shape: Any, values: Mapping[str, Any], batch: float) -> list[Operator]:
    return _make_elementwise(("softmax", *shape), values, batch)


def _make_optimizer(shape: Any, values: Mapping[str, Any], _batch: float) -> list[Operator]:
    """One optimizer step."""
    if len(shape) < 2:
        raise QuestionError(f"--optimizer {shape[0]} needs how many parameters it updates: --optimizer {shape[0]},7B")
    name, parameters = shape
    rule = load.record("optimizers", name, values.get("folders", ()))
    moved = leaf("bytes", traffic.optimizer_step, "B", parameters=parameters, bytes_read_written=rule.traffic)
    flop = leaf("FLOP", flops.elementwise, "FLOP", elements=parameters, operations=rule.flop)
    return [Operator(f"{rule.name} step", flop, moved, "fp32", vector=True)]


def _make_conv(shape: Any, values: Mapping[str, Any], batch: float) -> list[Operator]:
    """A convolution as a matrix product."""
    b, channels, height, width, out, side, *optional = shape
    b = b * batch
    stride = optional[0] if optional else 1.0
    padding = optional[1] if len(optional) > 1 else 0.0
    if min(height, width) + 2.0 * padding < side:
        raise QuestionError(f"--conv: a kernel of {side:.0f} does not fit into an image of {height:.0f} x {width:.0f}")
    a, w, c = _dtypes(values)
    rows, columns = (float(flops.convolved_extent(extent + 2.0 * padding, side, stride, 0.0)) for extent in (height, width))
    m, n, k = b * rows * columns, out, channels * side * side
    parts = [tensor_bytes("input", b * channels * height * width, a), tensor_bytes("kernel", n * k, w), tensor_bytes("output", m * n, c)]
    flop = leaf("FLOP", flops.gemm, "FLOP", m=m, n=n, k=k)
    return [Operator(f"conv {side:.0f} x {side:.0f} to {rows:.0f} x {columns:.0f}", flop, total("bytes", parts), a, grid=(m, n))]


MAKERS: dict[str, Callable[[Any, Mapping[str, Any], float], list[Operator]]] = {
    "gemm": _make_gemm,
    "attention": _make_attention,
    "norm": _make_elementwise,
    "softmax": _make_softmax,
    "activation": _make_elementwise,
    "optimizer": _make_optimizer,
    "conv": _make_conv,
}
COLUMNS = ("name", "operator", "shape", "dtype", "count", "measured")


def read_operators(path: str, values: Mapping[str, Any]) -> list[Operator]:
    """The operators of a CSV file, one a line: ``operator`` and ``shape`` as on the command line, the shape joined by x."""
    lines = read_csv(os.path.expanduser(path), "a file of operators")
    headers = [header.strip().lower() for header in lines[0][1]] if lines else []
    operators = [_read_line(with_headers(headers, cells), values, f"line {number} of {path}") for number, cells in lines[1:]]
    if not operators:
        raise InputError(f"{path}: no operators; the columns are {', '.join(COLUMNS)}")
    return operators


def _read_line(line: Mapping[str, str], values: Mapping[str, Any], where: str) -> Operator:
    """The operator of one line of a CSV file."""
    given = {key: value for key, value in line.items() if value}
    for key in line:
        if key not in COLUMNS and (key or line[key]):
            raise UnknownNameError("column", key, COLUMNS, where)
    kind = given.get("operator", "")
    if kind not in OPERATORS:
        raise UnknownNameError("operator", kind, OPERATORS, where)
    if "shape" not in given:
        raise QuestionError(f"{where}: missing shape: fill the column, such as 4096x4096x4096")
    shape = OPTIONS[kind].read(given["shape"], f"shape in {where}")
    if "dtype" in given:
        values = {**values, "dtype": OPTIONS["dtype"].read(given["dtype"], f"dtype in {where}")}
    operator = make_operators(kind, shape, values)[0]  # attention in a file is the flash kernel
    count = whole(given["count"], f"count in {where}") if "count" in given else 1.0
    measured = duration(given["measured"], f"measured in {where}") if "measured" in given else None
    return replace(operator, name=given.get("name", operator.name), count=count, measured=measured)
