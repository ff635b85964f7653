"""A network as a list of its operators: ResNet-50, DLRM, a diffusion U-Net, or the user's own TOML file.

A list has the shapes of one sample. Parameters, FLOPs and least bytes of a forward pass and of a training step follow from the laws of
each operator; the batch multiplies every shape, and weights are read once a pass. What backward keeps is the sum of the outputs that
it needs: of every operator, except where the list says ``kept = false`` or names a kind in ``not_kept``.
"""

from __future__ import annotations

import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ironlaw import units
from ironlaw.catalog import load
from ironlaw.catalog.optimizer import Optimizer
from ironlaw.cautions.table import caution
from ironlaw.errors import InputError, QuestionError, UnknownNameError
from ironlaw.estimate.layer.attention import FLASH_BACKWARD_FLOP
from ironlaw.files import is_there, read_toml
from ironlaw.law import flops, parameters, traffic
from ironlaw.precision import PRECISIONS
from ironlaw.question import defaults
from ironlaw.question.assumptions import Assumptions, assume
from ironlaw.questions.answer import Answer, Column, Table
from ironlaw.questions.roofline import list_memory, roofs
from ironlaw.questions.roofline.operators import Operator, element_bytes, make_operators, tensor_bytes
from ironlaw.questions.roofline.options import CENSUSES
from ironlaw.terms import Term, leaf, plain, scalar, total

LISTS = Path(__file__).parent / "lists"
BATCH = 32.0
BATCHES = (
    Column("batch", "batch", "1"), Column("flop", "FLOPs per sample", "FLOP"), Column("training_flop", "in training", "FLOP"),
    Column("bytes", "bytes per sample", "B"), Column("training_bytes", "in training", "B"), Column("intensity", "FLOP/B", "1"),
    Column("forward_time", "least forward time", "s"), Column("step_time", "least training step", "s"),
    Column("samples_per_second", "samples/s at most", "1"), Column("hbm_share", "hbm-bound", "%"),
)  # fmt: skip
KINDS = (
    Column("kind", "kind"), Column("count", "runs", "1"), Column("parameters", "parameters", "1"), Column("flop", "FLOPs forward", "FLOP"),
    Column("bytes", "bytes forward", "B"), Column("flop_share", "of FLOPs", "%"), Column("bytes_share", "of bytes", "%"),
)  # fmt: skip
ROWS = (
    Column("operator", "operator"), Column("count", "count", "1"), Column("parameters", "parameters", "1"), Column("flop", "FLOPs", "FLOP"),
    Column("bytes", "bytes", "B"), Column("intensity", "FLOP/B", "1"), Column("roof", "roof"), Column("least_time", "least time", "s"),
)  # fmt: skip


@dataclass(frozen=True)
class Kind:
    """A kind of operator: the sizes of its shape for one sample, and its work on each element if it is elementwise."""

    sizes: tuple[str, ...]
    passes: tuple[float, float] | None = None  # times a tensor of that many elements crosses HBM, forward and backward
    work: str = ""  # its name in flops.OPERATIONS; one FLOP an element without
    kept: float = 1.0  # tensors of the size of its output that backward needs


# backward reads the gradient and the stored activations, and writes a gradient
KINDS_OF_OPERATORS = {
    "conv": Kind(("channels", "height", "width", "outputs", "kernel", "stride", "padding")),
    "linear": Kind(("rows", "inputs", "outputs")),
    "product": Kind(("rows", "inner", "columns")),
    "attention": Kind(("heads", "queries", "keys", "head width")),
    "embedding": Kind(("look-ups", "width", "rows of the table"), (2.0, 3.0)),
    "norm": Kind(("positions", "channels"), (2.0, 3.0), "layernorm"),
    "activation": Kind(("positions", "channels"), (2.0, 3.0), "silu"),
    "gate": Kind(("positions", "channels"), (3.0, 5.0), "geglu", kept=2.0),  # the activated half and the product
    "pool": Kind(("positions", "channels"), (2.0, 3.0)),
    "add": Kind(("positions", "channels"), (3.0, 0.0)),
}


@dataclass(frozen=True, eq=False)
class ListedOperator:
    """An operator of the list at a batch, all its runs together."""

    name: str
    kind: str
    count: float
    parameters: float
    forward: Operator
    flop: tuple[float, float]  # forward, backward
    moved: tuple[float, float]
    kept: float  # bytes of one sample that backward needs


@dataclass(frozen=True, eq=False)
class ListedNetwork:
    """All operators of a list at one batch, under the roofs of a device."""

    operators: list[ListedOperator]
    row: dict[str, Any]  # of the table of batches
    update: Term  # bytes of the optimizer


def answer(_question: str, values: dict[str, Any], folders: tuple[str, ...]) -> Answer:
    """Parameters, FLOPs, bytes and least times of a listed network, for one batch or several."""
    notes: Assumptions = []
    listed = read_list(values["census"])
    device = roofs.bind_device(values, folders, notes)
    dtype = roofs.bind_dtype(values, folders, notes)["dtype"][0]
    if "batch" not in values:
        assume(notes, "batch", BATCH, "default")
    batches = values.get("batch", (BATCH,))
    named = values["optimizer"][0] if "optimizer" in values else listed["optimizer"]
    rule = load.record("optimizers", named, folders)
    optimizer = rule.name
    if len(values.get("optimizer", ())) > 1:
        raise QuestionError("with --census, --optimizer takes a name without a number: the list sets the parameters")
    networks = [_evaluate_network(device, listed, dtype, batch, rule) for batch in batches]
    last = networks[-1]
    headline, terms, feasible = _write_headline(device, listed, last, values, optimizer)
    tables = [
        Table("batches", "By batch", BATCHES, [network.row for network in networks]),
        Table("kinds", f"By kind of operator, forward, batch {batches[-1]:g}", KINDS, _kind_rows(last.operators)),
        Table("operators", f"Operators, forward, batch {batches[-1]:g}", ROWS, _operator_rows(device, last.operators)),
    ]
    warnings = [caution("left-out", item=item) for item in listed["left_out"]]
    warnings.append(caution("least-bytes"))
    warnings.append(caution("memory-leaves-out"))
    title = f"{listed['title']} on {device.name}, by its operators"
    if device.cluster is not None:
        cluster, context = device.cluster, load.record("frameworks", device.framework, folders).context
        amounts = list_memory.Amounts(last.row["parameters"], _count_dense(last.operators), _sum_kept(listed, last.operators))
        memory = list_memory.memory_by_batch(
            amounts, batches, dtype, rule, context, cluster.accelerator.memory_usable or cluster.accelerator.memory_capacity,
            _name_sample(listed),
        )  # fmt: skip
        headline.append(memory.sentence)
        terms += memory.terms
        tables.insert(1, memory.table)
    extra = {"parameters": last.row["parameters"], "published": listed.get("published", {}), "source": listed.get("source", {})}
    return Answer(title, headline, tables, terms, extra, notes, warnings, feasible, folders)


def _name_sample(listed: Mapping[str, Any]) -> str:
    """What one sample is, with its article."""
    sample = str(listed["sample"])
    return f"{'an' if sample[0] in 'aeiou' else 'a'} {sample}"


def read_list(name: str) -> dict[str, Any]:
    """A list that ships, by name, or a TOML file, checked."""
    shipped = LISTS / f"{CENSUSES.get(name, name)}.toml"
    path = shipped if is_there(shipped) else Path(os.path.expanduser(name))
    if path.suffix != ".toml":
        raise UnknownNameError("--census", name, CENSUSES, more="or a TOML file of operators")
    listed = read_toml(path, "a list of operators")
    where = path.name
    if not isinstance(listed.get("operators"), list) or not listed["operators"]:
        raise InputError(f"{where} lists no operators: operators = [{{ operator = ..., shape = [...] }}, ...]")
    for number, item in enumerate(listed["operators"], 1):
        _check_operator(item, f"operator {number} of {where}")
    listed = {
        "optimizer": defaults.OPTIMIZER,
        "left_out": [],
        "not_kept": [],
        "sample": "sample",
        "title": listed.get("name", where),
        **listed,
    }
    for kind in listed["not_kept"] if isinstance(listed["not_kept"], list) else [listed["not_kept"]]:
        if kind not in KINDS_OF_OPERATORS:
            raise UnknownNameError("not_kept", str(kind), KINDS_OF_OPERATORS, where)
    return listed


def _check_operator(item: Any, where: str) -> None:
    """Refuse an entry of a list with an unknown operator, wrong sizes or a wrong count."""
    if not isinstance(item, dict) or item.get("operator") not in KINDS_OF_OPERATORS:
        name = item.get("operator") if isinstance(item, dict) else item
        raise UnknownNameError("operator", str(name), KINDS_OF_OPERATORS, where)
    names, shape = KINDS_OF_OPERATORS[item["operator"]].sizes, item.get("shape")
    if not isinstance(shape, list) or len(shape) != len(names):
        raise InputError(f"{where}: shape must be {len(names)} numbers: {', '.join(names)}")
    least = [0 if name == "padding" else 1 for name in names]
    if any(type(size) is not int or size < low for size, low in zip(shape, least, strict=True)):
        raise InputError(f"{where}: {shape}: every size is a whole number of at least 1 (padding 0)")
    if item["operator"] == "conv" and min(shape[1:3]) + 2 * shape[6] < shape[4]:
        raise InputError(f"{where}: a kernel of {shape[4]} does not fit into {shape[1]} x {shape[2]} with padding {shape[6]}")
    count = item.get("count", 1)
    if not isinstance(count, int) or isinstance(count, bool) or count < 1:
        raise InputError(f"{where}: count is {count}, must be a whole number of at least 1")
    output = item.get("output", [1, 1])
    if not isinstance(output, list) or len(output) != 2 or any(type(size) is not int or size < 1 for size in output):
        raise InputError(f"{where}: output is {output}, must be two numbers: positions, channels")
    if type(item.get("kept", True)) not in (bool, int) or not 0 <= item.get("kept", True) <= count:
        raise InputError(f"{where}: kept is {item['kept']}, must be true, false or how many of its {count} outputs backward needs")
    if type(item.get("index_bytes", 0)) is not int or not 0 <= item.get("index_bytes", 0) <= 8:
        raise InputError(f"{where}: index_bytes is {item['index_bytes']}, must be a whole number from 0 to 8")


def bind_operator(item: Mapping[str, Any], dtype: str, batch: float, kept: bool = True) -> ListedOperator:
    """One operator of a list at a batch: parameters, forward and backward FLOPs and least bytes, and what backward keeps of a sample."""
    kind, shape = item["operator"], [float(size) for size in item["shape"]]
    forward = _make_forward(kind, item.get("name", kind), shape, dtype, batch)
    flop, moved = scalar(forward.flop), scalar(forward.traffic)
    passes = KINDS_OF_OPERATORS[kind].passes
    if passes is not None:
        backward = (flop * passes[1] / passes[0], moved * passes[1] / passes[0])
    elif kind == "attention":
        backward = (flop * FLASH_BACKWARD_FLOP, moved * 2.0)  # reads six tensors, writes gradients of three; the rest is small
    else:  # two products of the same matrices, for the input and for the weights; the first layer needs no gradient of its input
        products = 1.0 if item.get("first") else 2.0
        backward = (flop * products, moved * products)
    count = float(item.get("count", 1))
    weights = _count_weights(kind, shape, float(item.get("bias", False)))
    return ListedOperator(
        forward.name, kind, count, weights * count, forward, (flop * count, backward[0] * count), (moved * count, backward[1] * count),
        _kept_bytes(item, shape, PRECISIONS[dtype].activation_bytes, kept),
    )  # fmt: skip


def _kept_bytes(item: Mapping[str, Any], shape: Sequence[float], size: float, kept: bool) -> float:
    """Bytes of one sample that backward needs of all runs: outputs, the places of maxima, and the input of the first operator."""
    kind, count, asked = item["operator"], float(item.get("count", 1)), item.get("kept", kept)
    runs = float(asked) if type(asked) is int else count * float(asked)
    output = _output_elements(kind, [float(side) for side in item.get("output", ())] or shape)
    entered = 0.0
    if item.get("first"):
        entered = shape[0] * shape[1] * shape[2] if kind == "conv" else shape[0] * shape[1]
    return size * (entered + output * KINDS_OF_OPERATORS[kind].kept * runs) + output * float(item.get("index_bytes", 0)) * count


def _output_elements(kind: str, shape: Sequence[float]) -> float:
    """Elements of the output of one operator, for one sample."""
    if kind == "conv":
        _, height, width, outputs, side, stride, padding = shape
        return outputs * math.prod(float(flops.convolved_extent(extent, side, stride, padding)) for extent in (height, width))
    if kind == "attention":
        heads, queries, _, head_width = shape
        return heads * queries * head_width
    if kind in ("linear", "product"):
        return shape[0] * shape[2]
    return shape[0] * shape[1]


def _sum_kept(listed: Mapping[str, Any], operators: Sequence[ListedOperator]) -> Term:
    """What backward needs of one sample: the outputs of all operators that keep one."""
    parts = [Term(f"{op.name}, {op.count:g} times" if op.count > 1 else op.name, op.kept, "B") for op in operators if op.kept]
    return total(f"activations of {_name_sample(listed)}", parts, unit="B")


def _count_dense(operators: Sequence[ListedOperator]) -> float:
    """Parameters that have gradients and optimizer states of their own size; a step touches few rows of an embedding table."""
    return sum(op.parameters for op in operators if op.kind != "embedding")


def _count_weights(kind: str, shape: Sequence[float], bias: float) -> float:
    """Parameters of one operator."""
    if kind in ("conv", "linear"):
        return float(parameters.linear(*_matrix_sides(kind, shape), bias))
    if kind == "norm":
        return float(parameters.norm(shape[1], 2.0))
    return float(parameters.embedding(shape[2], shape[1])) if kind == "embedding" else 0.0


def _matrix_sides(kind: str, shape: Sequence[float]) -> tuple[float, float]:
    """Inputs and outputs of the weight matrix of a convolution or a linear layer."""
    return (shape[0] * shape[4] ** 2, shape[3]) if kind == "conv" else (shape[1], shape[2])


def _make_forward(kind: str, name: str, shape: Sequence[float], dtype: str, batch: float) -> Operator:
    """The forward pass of one listed operator at a batch: FLOPs and least bytes."""
    size = element_bytes(dtype)
    if kind in ("conv", "linear"):
        maker, sizes = ("conv", (1.0, *shape)) if kind == "conv" else ("gemm", tuple(shape))
        return replace(make_operators(maker, sizes, {"dtype": (dtype, dtype, dtype)}, batch)[0], name=name)
    if kind == "product":
        m, k, n = shape
        moved = total("bytes", [leaf("one product", traffic.gemm, "B", m=m, n=n, k=k, bytes_a=size, bytes_b=size, bytes_c=size)], batch)
        return Operator(name, total("FLOP", [leaf("one product", flops.gemm, "FLOP", m=m, n=n, k=k)], batch), moved, dtype)
    if kind == "attention":
        heads, queries, keys, width = shape
        core = {"batch": batch, "seq_len": queries, "key_length": keys, "num_attention_heads": heads, "head_dim": width}
        ends = batch * heads * width
        parts = [tensor_bytes("queries and output", 2.0 * ends * queries, dtype), tensor_bytes("keys and values", 2.0 * ends * keys, dtype)]
        return Operator(name, leaf("FLOP", flops.attention_core, "FLOP", **core), total("bytes", parts), dtype)
    row, elements = KINDS_OF_OPERATORS[kind], batch * shape[0] * shape[1]
    assert row.passes is not None
    operations = flops.OPERATIONS[row.work] if row.work else 1.0
    moved = leaf("bytes", traffic.elementwise, "B", elements=elements, bytes_per_element=size, passes=row.passes[0])
    return Operator(name, leaf("FLOP", flops.elementwise, "FLOP", elements=elements, operations=operations), moved, dtype, vector=True)


def _evaluate_network(device: roofs.Device, listed: dict[str, Any], dtype: str, batch: float, rule: Optimizer) -> ListedNetwork:
    """All operators at a batch, and their times. The optimizer updates all but embedding tables, whose rows backward writes."""
    operators = [bind_operator(item, dtype, batch, item["operator"] not in listed["not_kept"]) for item in listed["operators"]]
    dense = _count_dense(operators)
    update = leaf("bytes of the update", traffic.optimizer_step, "B", parameters=dense, bytes_read_written=rule.traffic)
    bandwidth = plain(device.bandwidth)
    forward = products = 0.0
    training = on_hbm = scalar(update) / bandwidth
    for op in operators:
        peak = plain(device.peak(op.forward))
        times = [(flop / peak, moved / bandwidth) for flop, moved in zip(op.flop, op.moved, strict=True)]
        forward += max(times[0])
        products += 0.0 if op.forward.vector else sum(compute for compute, _ in times)
        training += sum(max(pair) for pair in times)
        on_hbm += sum(hbm for compute, hbm in times if hbm > compute)
    forward_flop, flop = sum(op.flop[0] for op in operators), sum(sum(op.flop) for op in operators)
    forward_bytes, moved = sum(op.moved[0] for op in operators), sum(sum(op.moved) for op in operators) + scalar(update)
    row = {
        "batch": batch, "parameters": sum(op.parameters for op in operators), "flop": forward_flop / batch,
        "training_flop": flop / batch, "bytes": forward_bytes / batch, "training_bytes": moved / batch, "intensity": flop / moved,
        "forward_time": forward, "step_time": training, "compute_time": products, "samples_per_second": batch / training,
        "hbm_share": on_hbm / training,
    }  # fmt: skip
    return ListedNetwork(operators, row, update)


def _write_headline(
    device: roofs.Device, listed: dict[str, Any], network: ListedNetwork, values: dict[str, Any], optimizer: str
) -> tuple[list[str], list[Term], bool]:
    """Headline and terms of one network at one batch, and False where a measured step is impossible."""
    row, batch = network.row, network.row["batch"]
    flop, moved, count = (
        total(name, [Term(op.name, value, unit) for op, value in zip(network.operators, amounts, strict=True) if value], unit=unit)
        for name, unit, amounts in (
            ("FLOP of a sample, forward", "FLOP", [op.flop[0] / batch for op in network.operators]),
            ("bytes of a sample, forward", "B", [op.moved[0] / batch for op in network.operators]),
            ("parameters", "1", [op.parameters for op in network.operators]),
        )
    )
    headline = [
        f"{units.show(scalar(count), 'parameter', 4)}; {_name_sample(listed)}: {units.show(row['flop'], 'FLOP', 4)} and "
        f"{units.show(row['bytes'], 'B', 4)} forward, {units.show(row['training_flop'], 'FLOP', 4)} and "
        f"{units.show(row['training_bytes'], 'B', 4)} in training (batch {batch:g})",
        f"at the roofs of {device.name}: {units.show(row['forward_time'], 's', 4)} forward, {units.show(row['step_time'], 's', 4)} per "
        f"training step with {optimizer}, at most {row['samples_per_second']:,.0f} samples/s; {row['hbm_share']:.0%} of it hbm-bound",
    ]
    feasible, measured = True, roofs.measured_step(values, batch)
    if measured is not None:
        if len(values.get("batch", ())) > 1:
            raise QuestionError("a measured step has one batch: give one --batch")
        sentence, feasible = _judge(row, measured)
        headline.append(sentence)
    lines, passes = roofs.compare_with_baseline(values)
    headline, feasible = [*headline, *lines], feasible and passes
    return headline, [count, flop, moved, network.update], feasible


def _judge(row: Mapping[str, Any], measured: float) -> tuple[str, bool]:
    """A sentence on a measured training step, and whether it is possible: products need the peak, fusion may save bytes."""
    start, products = f"measured {units.show(measured, 's', 4)} per step", row["compute_time"] / measured
    if products > 1.0:
        wrong = "the rate, the devices or the list"
        return f"{start}: impossible, {products:.3g} times the compute roof by its products alone; check {wrong}", False
    share = row["step_time"] / measured
    fused = ": its kernels are fused" if share > 1.0 else ""
    of_roofs = f"{share:.3g} times the roofs without fusion" if fused else f"{share:.0%} of the roofs"
    return f"{start}: {of_roofs}, {products:.0%} of the compute roof{fused}", True


def _kind_rows(operators: Sequence[ListedOperator]) -> list[dict[str, Any]]:
    """A row for each kind of operator: count, parameters, FLOPs and bytes with their shares."""
    kinds: dict[str, list[ListedOperator]] = {}
    for op in operators:
        kinds.setdefault(op.kind, []).append(op)
    flop = {kind: sum(op.flop[0] for op in listed) for kind, listed in kinds.items()}
    moved = {kind: sum(op.moved[0] for op in listed) for kind, listed in kinds.items()}
    return [
        {
            "kind": kind, "count": sum(op.count for op in listed), "parameters": sum(op.parameters for op in listed), "flop": flop[kind],
            "bytes": moved[kind], "flop_share": flop[kind] / sum(flop.values()), "bytes_share": moved[kind] / sum(moved.values()),
        }
        for kind, listed in kinds.items()
    ]  # fmt: skip


def _operator_rows(device: roofs.Device, operators: Sequence[ListedOperator]) -> list[dict[str, Any]]:
    """A row for each operator at its roof, the longest first."""
    rows = []
    for op in operators:
        point = roofs.roofline_point(device, op.forward)
        rows.append({
            "operator": op.name, "kind": op.kind, "count": op.count, "parameters": op.parameters or None, "flop": op.flop[0],
            "bytes": op.moved[0], "intensity": scalar(point.intensity), "roof": point.bound, "least_time": scalar(point.least) * op.count,
        })  # fmt: skip
    return sorted(rows, key=lambda row: -row["least_time"])
