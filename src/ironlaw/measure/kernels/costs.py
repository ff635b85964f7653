"""Count FLOPs and least bytes of one operator from the recorded sizes of its inputs.

An operator is a name and a Shape. If the sizes are incomplete, the result is None, never a guess. ``flop`` counts what the kernels compute
(the backward pass of attention computes the scores again); ``model_flop`` counts what the definition of MFU includes.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

from ironlaw.catalog import load
from ironlaw.estimate.layer.attention import FLASH_BACKWARD_FLOP, UNFUSED_BACKWARD_FLOP
from ironlaw.law import flops, masks, traffic
from ironlaw.measure.events import Shape
from ironlaw.measure.read.toml import shipped

ELEMENT_BYTES = {
    "float": 4.0, "c10::BFloat16": 2.0, "c10::Half": 2.0, "double": 8.0, "long int": 8.0, "long": 8.0, "int": 4.0, "short": 2.0,
    "unsigned char": 1.0, "signed char": 1.0, "char": 1.0, "bool": 1.0,
    "c10::Float8_e4m3fn": 1.0, "c10::Float8_e5m2": 1.0, "c10::Float8_e4m3fnuz": 1.0, "c10::Float8_e5m2fnuz": 1.0,
}  # fmt: skip
PRECISION = {"float": "fp32", "c10::BFloat16": "bf16", "c10::Half": "fp16", "double": "fp64"}
_MOST = 2.0**62  # FLOPs or bytes of one operator; more means a wrong size


@dataclass(frozen=True)
class Cost:
    """FLOPs and bytes of one call."""

    flop: float  # that the kernels compute
    traffic: float | None  # [B] least bytes; None if the element size is unknown
    kind: str  # class of the kernels that do the work
    model_flop: float  # that MFU counts
    precision: str  # of the operands, "" if it is not a format of a matrix unit
    rows: float = 0.0  # attention: rows of queries
    keys: float = 0.0  # attention: keys of a sequence
    backward: bool = False


@dataclass(frozen=True)
class Sizes:
    """The inputs of an operator as numbers."""

    shape: Shape

    def dims(self, i: int) -> tuple[int, ...]:
        """The sizes of tensor ``i``."""
        item = self.shape.dims[i]
        if not isinstance(item, list) or not self.has(i) or not all(type(n) is int and 0 <= n < 2**40 for n in item):
            raise _UnknownSizesError
        return tuple(item)

    def has(self, i: int) -> bool:
        """Whether argument ``i`` is a tensor; a scalar tensor differs from a number by its element type."""
        item = self.shape.dims[i] if i < len(self.shape.dims) else None
        scalar = i < len(self.shape.types) and self.shape.types[i] in ELEMENT_BYTES
        return isinstance(item, list) and (len(item) > 0 or scalar)

    def element(self, i: int) -> float:
        """Bytes per element of tensor ``i``."""
        return ELEMENT_BYTES[self.shape.types[i]]

    def precision(self, i: int) -> str:
        """The number format of tensor ``i``."""
        kind = self.shape.types[i] if i < len(self.shape.types) else ""
        return "fp8" if "Float8" in kind else PRECISION.get(kind, "")

    def value(self, i: int) -> str:
        """The recorded value of argument ``i``, "" if there is none."""
        return self.shape.values[i] if i < len(self.shape.values) else ""

    def numbers(self, i: int) -> tuple[int, ...] | None:
        """The list of integers in argument ``i``; None if not recorded."""
        text = self.value(i).strip("[] ")
        parts = [p.strip() for p in text.split(",")] if text else []
        return tuple(int(p) for p in parts) if parts and all(p.lstrip("-").isdecimal() and len(p) < 12 for p in parts) else None

    def bytes(self, i: int) -> float:
        """Bytes of tensor ``i``."""
        return float(traffic.elementwise(math.prod(self.dims(i)), self.element(i), 1.0))


class _UnknownSizesError(Exception):
    """The recorded sizes are incomplete."""


@dataclass(frozen=True)
class Rule:
    """The rule that counts the cost of an operator."""

    cost: str
    arguments: dict[str, Any]
    parent: bool = False  # take the sizes from the enclosing operator


Dims = tuple[int, ...]
Outputs = dict[tuple[Dims, Dims], Dims | None]  # of convolutions: input and weight -> output


@cache
def rules() -> dict[str, Rule]:
    """The rules by name of operator."""
    table = shipped("operators.toml")
    by_operator = {}
    for item in table["operator"]:
        arguments = {k: v for k, v in item.items() if k not in ("cost", "names", "parent")}
        by_operator.update({name: Rule(item["cost"], arguments, item.get("parent", False)) for name in item["names"]})
    return by_operator


@cache
def forward_only() -> frozenset[str]:
    """Names of operators that only a forward pass calls."""
    return frozenset(shipped("operators.toml")["forward"]["names"])


def cost_of(name: str, shape: Shape, outputs: Outputs | None = None) -> Cost | None:
    """The cost of one call of operator ``name`` with these inputs; None if no rule or not all sizes are known.

    >>> cost_of("aten::mm", Shape(([10, 1000], [1000, 512]), ("c10::BFloat16",) * 2)).flop
    10240000.0
    """
    rule = rules().get(name)
    if rule is None:
        return None
    try:
        with np.errstate(all="ignore"):
            cost = _COSTS[rule.cost](Sizes(shape), outputs or {}, **rule.arguments)
    except (_UnknownSizesError, IndexError, KeyError, ValueError, TypeError, OverflowError, ZeroDivisionError):
        return None
    numbers = (cost.flop, cost.model_flop, cost.traffic or 0.0)
    return cost if all(math.isfinite(n) and 0.0 <= n < _MOST for n in numbers) else None


def outputs_of_convolutions(calls: list[tuple[str, Shape]]) -> Outputs:
    """Output sizes of convolutions from their backward pass, for traces without strides.

    A pair of input and weight with two different outputs maps to None.
    """
    outputs: Outputs = {}
    for name, shape in calls:
        rule = rules().get(name)
        if rule is None or rule.cost != "convolution_backward":
            continue
        try:
            s = Sizes(shape)
            gradient, source = (0, 1) if rule.arguments["first"] == "gradient" else (1, 0)
            key, output = (s.dims(source), s.dims(2)), s.dims(gradient)
        except (_UnknownSizesError, IndexError):
            continue
        outputs[key] = output if outputs.get(key, output) == output else None
    return outputs


def _count_product(s: Sizes, a: int, b: int, m: int, n: int, k: int, batch: float = 1.0, result: float | None = None) -> Cost:
    """The cost of ``batch`` products (m, k) x (k, n)."""
    flop = batch * float(flops.gemm(m, n, k))
    moved = batch * float(traffic.gemm(m, n, k, s.element(a), s.element(b), s.element(a) if result is None else result))
    return Cost(flop, moved, "gemm", flop, s.precision(a))


def _mm(s: Sizes, _: Outputs) -> Cost:
    """A matrix product of any number of dimensions, with those before the last two as a batch."""
    a, b = s.dims(0), s.dims(1)
    if len(b) == 1:
        b = (*b, 1)
    if len(a) < 2 or a[-1] != b[-2]:
        raise _UnknownSizesError
    if len(b) == 2:
        return _count_product(s, 0, 1, math.prod(a[:-1]), b[1], a[-1])
    batch = math.prod(max(x, y) for x, y in zip(_pad(a[:-2], len(b) - 2), _pad(b[:-2], len(a) - 2), strict=True))
    return _count_product(s, 0, 1, a[-2], b[-1], a[-1], batch)


def _pad(dims: Dims, to: int) -> Dims:
    return (1,) * (to - len(dims)) + dims


def _addmm(s: Sizes, outputs: Outputs) -> Cost:
    product = _mm(Sizes(Shape(s.shape.dims[1:3], s.shape.types[1:3])), outputs)
    return _add_bytes(product, s.bytes(0))


def _add_bytes(cost: Cost, moved: float) -> Cost:
    """Add bytes that are read besides the operands, such as a bias."""
    return Cost(cost.flop, (cost.traffic or 0.0) + moved, cost.kind, cost.model_flop, cost.precision)


def _bmm(s: Sizes, _: Outputs) -> Cost:
    """A batch of matrix products."""
    (batch, m, k), (other, inner, n) = s.dims(0), s.dims(1)
    if batch != other or k != inner:
        raise _UnknownSizesError
    return _count_product(s, 0, 1, m, n, k, batch)


def _baddbmm(s: Sizes, outputs: Outputs) -> Cost:
    return _add_bytes(_bmm(Sizes(Shape(s.shape.dims[1:3], s.shape.types[1:3])), outputs), s.bytes(0))


def _linear(s: Sizes, _: Outputs) -> Cost:
    """A linear layer; its weight is stored by rows of outputs."""
    a, b = s.dims(0), s.dims(1)
    if len(b) != 2 or a[-1] != b[1]:
        raise _UnknownSizesError
    product = _count_product(s, 0, 1, math.prod(a[:-1]), b[0], b[1])
    return _add_bytes(product, s.bytes(2)) if s.has(2) else product


def _scaled_mm(s: Sizes, _: Outputs) -> Cost:
    """A matrix product of 8-bit operands."""
    (m, k), (inner, n) = s.dims(0), s.dims(1)
    if k != inner:
        raise _UnknownSizesError
    return _count_product(s, 0, 1, m, n, k, result=2.0)  # 8-bit operands, a 16-bit result


def _grouped_mm(s: Sizes, _: Outputs, offsets: int) -> Cost:
    """Each row times the matrix of its group; or the weight gradients of the groups, one product per group of rows."""
    a, b = s.dims(0), s.dims(1)
    if len(a) != 2 or len(b) not in (2, 3) or a[1] != b[-2]:
        raise _UnknownSizesError
    result_bytes = max(s.element(0), 2.0)  # 8-bit operands, a 16-bit result
    product = _count_product(s, 0, 1, a[0], b[-1], a[1], result=result_bytes)
    groups = b[0] if len(b) == 3 else s.dims(offsets)[0]
    bytes_per_group = b[1] * b[2] * s.element(1) if len(b) == 3 else a[0] * b[1] * result_bytes
    return _add_bytes(product, (groups - 1) * bytes_per_group)


def _count_convolution(s: Sizes, inputs: Dims, weight: Dims, output: Dims, i: int, transposed: bool) -> Cost:
    """A forward convolution: the whole kernel at each position of the output (of the input if transposed)."""
    at = inputs if transposed else output
    channels = math.prod(weight[1:]) if not transposed else weight[1] * math.prod(weight[2:])
    flop = float(flops.gemm(at[0] * math.prod(at[2:]), weight[0], channels))
    elements = math.prod(inputs) + math.prod(weight) + math.prod(output)
    return Cost(flop, float(traffic.elementwise(elements, s.element(i), 1.0)), "conv", flop, s.precision(i))


def _convolution(s: Sizes, outputs: Outputs) -> Cost:
    """Arguments: input, weight, bias, stride, padding, dilation, transposed, output padding, groups."""
    transposed = s.value(6).lower() in ("true", "1")
    return _convolve_forward(s, outputs, s.numbers(3), s.numbers(4), s.numbers(5), transposed, s.numbers(7))


def _convolution_of_kind(s: Sizes, outputs: Outputs, order: str) -> Cost:
    """Arguments: input, weight, (bias,) stride and padding in one of two orders, dilation."""
    if order == "stride-padding":
        return _convolve_forward(s, outputs, s.numbers(3), s.numbers(4), s.numbers(5))
    first = 3 if len(s.shape.values) > 2 and not s.value(2) else 2  # miopen has a bias before these arguments, cudnn has none
    return _convolve_forward(s, outputs, s.numbers(first + 1), s.numbers(first), s.numbers(first + 2))


def _convolve_forward(
    s: Sizes,
    outputs: Outputs,
    stride: Dims | None,
    padding: Dims | None,
    dilation: Dims | None,
    transposed: bool = False,
    output_padding: Dims | None = None,
) -> Cost:
    """A forward convolution; without recorded strides its output size comes from the backward pass."""
    inputs, weight = s.dims(0), s.dims(1)
    sides = len(inputs) - 2
    if stride is None or padding is None or sides < 1 or len(weight) != len(inputs):
        output = outputs.get((inputs, weight))
        if output is None:
            raise _UnknownSizesError
        return _count_convolution(s, inputs, weight, output, 0, False)
    step, pad, gap, extra = (_per_dimension(x, sides, d) for x, d in ((stride, 1), (padding, 0), (dilation, 1), (output_padding, 0)))
    reach = [gap[i] * (weight[2 + i] - 1) + 1 for i in range(sides)]
    if transposed:
        groups = s.numbers(8) or (1,)
        output = (inputs[0], weight[1] * groups[0])
        output += tuple((inputs[2 + i] - 1) * step[i] - 2 * pad[i] + reach[i] + extra[i] for i in range(sides))
    else:
        output = (inputs[0], weight[0])
        output += tuple(int(flops.convolved_extent(inputs[2 + i], reach[i], step[i], pad[i])) for i in range(sides))
    return _count_convolution(s, inputs, weight, output, 0, transposed)


def _per_dimension(numbers: Dims | None, sides: int, default: int) -> Dims:
    if numbers is None:
        return (default,) * sides
    return numbers * sides if len(numbers) == 1 else numbers


def _convolution_backward(s: Sizes, _: Outputs, first: str) -> Cost:
    """Gradients of input and weight; each takes as many FLOPs as the forward pass."""
    gradient, source = (0, 1) if first == "gradient" else (1, 0)
    transposed = s.value(7).lower() in ("true", "1") if first == "gradient" else False
    per_gradient = _count_convolution(s, s.dims(source), s.dims(2), s.dims(gradient), gradient, transposed)
    words = s.value(10).strip("[] ").lower().split(",") if first == "gradient" else []
    computed = [w.strip() in ("true", "1") for w in words[:2]] or [True, True]
    count = float(sum(computed))
    return Cost(per_gradient.flop * count, (per_gradient.traffic or 0.0) * count, "conv", per_gradient.flop * count, per_gradient.precision)


def _convolution_gradient(s: Sizes, outputs: Outputs) -> Cost:
    """One of the two gradients; the enclosing operator has the sizes of input, output gradient and weight."""
    gradients = _convolution_backward(s, outputs, "input")
    return Cost(gradients.flop / 2.0, (gradients.traffic or 0.0) / 2.0, "conv", gradients.flop / 2.0, gradients.precision)


def _attention(s: Sizes, _: Outputs, layout: str, mask: int, backward: bool = False) -> Cost:
    """Fused attention. A causal mask counts half; an unrecorded mask counts as none."""
    at = 1 if backward else 0
    queries, keys, values = s.dims(at), s.dims(at + 1), s.dims(at + 2)
    if not len(queries) == len(keys) == len(values) == 4:  # packed sequences: the sizes do not contain their lengths
        raise _UnknownSizesError
    sequence, head = (2, 1) if layout == "bhsd" else (1, 2)
    batch, length, heads, key_length = queries[0], queries[sequence], queries[head], keys[sequence]
    width = (queries[3] + values[3]) / 2.0
    causal = _is_causal_mask(s, mask)
    attended = float(masks.attended_length(key_length, 0)) if causal else float(key_length)
    flop = float(flops.attention_core(batch, length, attended, heads, width))
    if key_length == length and queries[3] == values[3]:
        moved = float(traffic.flash_attention(batch, length, heads, keys[head], queries[3], s.element(at)))
    else:
        moved = 2.0 * s.bytes(at) + s.bytes(at + 1) + s.bytes(at + 2)
    rows, model = float(batch * length * heads), flop
    if backward:
        flop, moved, model = flop * FLASH_BACKWARD_FLOP, moved * FLASH_BACKWARD_FLOP, flop * UNFUSED_BACKWARD_FLOP
    return Cost(flop, moved, "attention", model, s.precision(at), rows, attended * (2.0 if causal else 1.0), backward)


def _is_causal_mask(s: Sizes, mask: int) -> bool:
    return s.value(mask).lower() in ("true", "1", "2")


def is_causal(name: str, shape: Shape) -> bool | None:
    """Whether a call of operator ``name`` has a causal mask; None if it is not attention.

    >>> is_causal("aten::scaled_dot_product_attention", Shape((), (), ("", "", "", "", "", "True"))), is_causal("aten::mm", Shape(()))
    (True, None)
    """
    rule = rules().get(name)
    return _is_causal_mask(Sizes(shape), rule.arguments["mask"]) if rule is not None and rule.cost == "attention" else None


def _pointwise(s: Sizes, _: Outputs, operations: str | float, passes: float) -> Cost:
    """``operations`` per element of the largest input, which is moved ``passes`` times."""
    elements, i = max((math.prod(s.dims(i)), -i) for i in range(len(s.shape.dims)) if s.has(i))
    per_element = flops.OPERATIONS[operations] if isinstance(operations, str) else operations
    flop = float(flops.elementwise(elements, per_element))
    return Cost(flop, float(traffic.elementwise(elements, s.element(-i), passes)), "", flop, s.precision(-i))


def _arithmetic(s: Sizes, _: Outputs, inputs: int) -> Cost:
    """Read each of the first ``inputs`` arguments once and write a result of the broadcast size."""
    tensors = [i for i in range(min(inputs, len(s.shape.dims))) if s.has(i)]
    sizes = [s.dims(i) for i in tensors]
    longest = max(len(d) for d in sizes)
    result = math.prod(max(column) for column in zip(*(_pad(d, longest) for d in sizes), strict=True))
    flop = float(flops.elementwise(result, len(tensors) - 1 or 1))
    moved = sum(s.bytes(i) for i in tensors) + float(traffic.elementwise(result, s.element(tensors[0]), 1.0))
    return Cost(flop, moved, "", flop, s.precision(tensors[0]))


def _copy(s: Sizes, _: Outputs) -> Cost:
    """Copy the second argument into the first."""
    return Cost(0.0, s.bytes(0) + s.bytes(1), "", 0.0, s.precision(0))


def _concatenation(s: Sizes, _: Outputs) -> Cost:
    """Concatenate a list of tensors; bytes are unknown, because lists are recorded without element type."""
    _lists(s)
    return Cost(0.0, None, "", 0.0, "")


def _lists(s: Sizes) -> float:
    """The number of elements in the first list of tensors."""
    first = s.shape.dims[0]
    if not isinstance(first, list) or not first or not all(isinstance(d, list) for d in first):
        raise _UnknownSizesError
    return float(sum(math.prod(d) for d in first))


def _rows(s: Sizes, _: Outputs) -> Cost:
    """Look up rows of a table by index: rows are read and written once, indices read."""
    at = 1 if s.has(1) else 2
    if at == 2 and s.value(1) not in ("0", ""):
        raise _UnknownSizesError
    table = s.dims(0)
    looked_up = math.prod(s.dims(at)) * math.prod(table[1:])
    return Cost(0.0, float(traffic.elementwise(looked_up, s.element(0), 2.0)) + s.bytes(at), "", 0.0, s.precision(0))


def _foreach(s: Sizes, _: Outputs) -> Cost:
    elements = _lists(s)
    flop = float(flops.elementwise(elements, 1.0))
    return Cost(flop, None, "", flop, "")


def _fused_optimizer(s: Sizes, _: Outputs, optimizer: str) -> Cost:
    """One pass over parameters, gradients and states; bytes are unknown, because lists are recorded without element type."""
    parameters = _lists(s)
    flop = float(flops.elementwise(parameters, load.record("optimizers", optimizer).flop.value))
    return Cost(flop, None, "", flop, "")


def _pooling_backward(s: Sizes, _: Outputs) -> Cost:
    """Read output gradients and indices, write the input gradient."""
    input_bytes = s.bytes(1)
    moved = s.bytes(0) + input_bytes + math.prod(s.dims(0)) * ELEMENT_BYTES["long int"]
    return Cost(0.0, moved, "", 0.0, s.precision(0))


_COSTS: dict[str, Callable[..., Cost]] = {
    "mm": _mm, "addmm": _addmm, "bmm": _bmm, "baddbmm": _baddbmm, "linear": _linear, "scaled_mm": _scaled_mm, "grouped_mm": _grouped_mm,
    "convolution": _convolution, "convolution_of_kind": _convolution_of_kind, "convolution_backward": _convolution_backward,
    "convolution_gradient": _convolution_gradient, "attention": _attention, "pointwise": _pointwise, "arithmetic": _arithmetic,
    "copy": _copy, "concatenation": _concatenation, "rows": _rows, "foreach": _foreach, "fused_optimizer": _fused_optimizer,
    "pooling_backward": _pooling_backward,
}  # fmt: skip
