"""A model as a list of its operators: networks that are no decoder (convolutions, recommendation, diffusion), or a list of one's own.

A list is a TOML file of operators with the shapes of one sample. Parameters, FLOPs and least bytes of a forward pass and of training
follow by the laws of each operator; the batch comes in front of every shape, and weights are read once a pass.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ironlaw import units
from ironlaw.errors import InputError, QuestionError, UnknownNameError
from ironlaw.estimate.bind.cluster import bind_precision
from ironlaw.estimate.layer.passes import FLASH_BACKWARD_FLOP
from ironlaw.law import flops, parameters, traffic
from ironlaw.law.states import OPTIMIZERS
from ironlaw.question.assumptions import Assumptions, assume
from ironlaw.questions.answer import Answer, Column, Table
from ironlaw.questions.roofline import roofs
from ironlaw.questions.roofline.ask import CENSUSES
from ironlaw.questions.roofline.operators import Operator, element
from ironlaw.terms import Term, leaf, plain, total

LISTS = Path(__file__).parent / "lists"
SHAPES = {  # the sizes of each operator for one sample
    "conv": ("channels", "height", "width", "outputs", "kernel", "stride", "padding"),
    "linear": ("rows", "inputs", "outputs"),
    "product": ("rows", "inner", "columns"),
    "attention": ("heads", "queries", "keys", "head width"),
    "embedding": ("look-ups", "width", "rows of the table"),
    "norm": ("positions", "channels"),
    "activation": ("positions", "channels"),
    "gate": ("positions", "channels"),
    "pool": ("positions", "channels"),
    "add": ("positions", "channels"),
}
# times a tensor of that many elements crosses HBM: forward, backward. Backward reads the gradient and what was kept, and writes a gradient
PASSES = {"norm": (2.0, 3.0), "activation": (2.0, 3.0), "gate": (3.0, 5.0), "pool": (2.0, 3.0), "add": (3.0, 0.0), "embedding": (2.0, 3.0)}
WORK = {"norm": "layernorm", "activation": "silu", "gate": "geglu"}  # FLOPs of an element; pools, sums and look-ups count as one


@dataclass(frozen=True, eq=False)
class Pass:
    """An operator of the list in one pass at a batch, all its runs together."""

    name: str
    kind: str
    count: float
    parameters: float
    forward: Operator
    flop: tuple[float, float]  # forward, backward
    moved: tuple[float, float]


def answer(question: str, values: dict[str, Any], folders: tuple[str, ...]) -> Answer:
    """What a list is, and what the roofs of a device make of it, for one batch or several."""
    del question
    notes: Assumptions = []
    listed = read_list(values["census"])
    device = roofs.bind(values, folders, notes)
    if "dtype" not in values:
        name = bind_precision(values["on"], folders) if "on" in values else "bf16"
        values = {**values, "dtype": (name, name, name)}
        assume(notes, "dtype", name, "default")
    if "batch" not in values:
        assume(notes, "batch", 32.0, "default")
    batches = values.get("batch", (32.0,))
    chosen = values["optimizer"][0] if "optimizer" in values else listed["optimizer"]
    if len(values.get("optimizer", ())) > 1:
        raise QuestionError("with --census --optimizer is a name alone: the list says how many parameters")
    made = [_at(device, listed, values["dtype"][0], batch, chosen) for batch in batches]
    last = made[-1]
    headline, terms, possible = _headline(device, listed, last, values, chosen)
    tables = [Table("batches", "By batch", BATCHES, [row for _, row, _ in made])]
    tables.append(Table("kinds", f"What is done for a batch of {batches[-1]:g}", KINDS, _kinds(last[0])))
    tables.append(Table("operators", f"Operators, forward, batch {batches[-1]:g}", ROWS, _rows(device, last[0])))
    warnings = [f"left out: {item}" for item in listed["left_out"]]
    warnings.append("least bytes: nothing stays in a cache from one operator to the next, and nothing is fused")
    title = f"{listed['title']} on {device.name}, by its operators"
    extra = {"parameters": last[1]["parameters"], "published": listed.get("published", {}), "source": listed.get("source", {})}
    return Answer(title, headline, tables, terms, extra, notes, warnings, possible, folders)


def read_list(name: str) -> dict[str, Any]:
    """A list that ships, by name, or a file of one's own."""
    known = LISTS / f"{CENSUSES.get(name, name)}.toml"
    path = known if known.is_file() else Path(name).expanduser()
    if path.suffix != ".toml":
        raise UnknownNameError("--census", name, CENSUSES, more="or a TOML file of operators")
    try:
        found = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{path}: cannot be read: {getattr(error, 'strerror', None) or 'not a text'}") from None
    except tomllib.TOMLDecodeError as error:
        raise InputError(f"{path}: not valid TOML: {error}") from None
    return _checked(found, path.name)


def _checked(found: dict[str, Any], where: str) -> dict[str, Any]:
    if not isinstance(found.get("operators"), list) or not found["operators"]:
        raise InputError(f"{where} lists no operators: operators = [{{ operator = ..., shape = [...] }}, ...]")
    for number, item in enumerate(found["operators"], 1):
        place = f"operator {number} of {where}"
        if not isinstance(item, dict) or item.get("operator") not in SHAPES:
            raise UnknownNameError("operator", str(item.get("operator") if isinstance(item, dict) else item), SHAPES, place)
        names, shape = SHAPES[item["operator"]], item.get("shape")
        if not isinstance(shape, list) or len(shape) != len(names):
            raise InputError(f"{place}: shape must be {len(names)} numbers: {', '.join(names)}")
        least = [0 if name == "padding" else 1 for name in names]
        if any(type(size) is not int or size < low for size, low in zip(shape, least, strict=True)):
            raise InputError(f"{place}: {shape}: every size is a whole number of at least 1 (padding 0)")
        if item["operator"] == "conv" and min(shape[1:3]) + 2 * shape[6] < shape[4]:
            raise InputError(f"{place}: a kernel of {shape[4]} does not fit into {shape[1]} x {shape[2]} with padding {shape[6]}")
        count = item.get("count", 1)
        if not isinstance(count, int) or isinstance(count, bool) or count < 1:
            raise InputError(f"{place}: count is {count}, must be a whole number of at least 1")
    optimizer = found.setdefault("optimizer", "adamw")
    if optimizer not in OPTIMIZERS:
        raise UnknownNameError("optimizer", str(optimizer), OPTIMIZERS, where)
    found.setdefault("left_out", [])
    found.setdefault("sample", "sample")
    found.setdefault("title", found.get("name", where))
    return found


def pass_of(item: Mapping[str, Any], dtype: str, batch: float) -> Pass:
    """One operator of a list: its parameters, and its forward and backward FLOPs and least bytes."""
    kind, shape = item["operator"], [float(size) for size in item["shape"]]
    weights = float(parameters.linear(*_matrix(kind, shape), float(item.get("bias", False)))) if kind in ("conv", "linear") else 0.0
    if kind == "norm":
        weights = float(parameters.norm(shape[1], 2.0))
    elif kind == "embedding":
        weights = float(parameters.embedding(shape[2], shape[1]))
    one = _forward(kind, item.get("name", kind), shape, dtype, batch)
    flop, moved = float(one.flop.value), float(one.traffic.value)
    if kind in PASSES:
        ahead, back = PASSES[kind]
        after = (flop * back / ahead, moved * back / ahead)
    elif kind == "attention":
        after = (flop * FLASH_BACKWARD_FLOP, moved * 2.0)  # reads six tensors and writes gradients of three, less what is small
    else:  # two products of the same three matrices: for the input and for the weights; of the first layer only the latter
        times = 1.0 if item.get("first") else 2.0
        after = (flop * times, moved * times)
    count = float(item.get("count", 1))
    return Pass(one.name, kind, count, weights * count, one, (flop * count, after[0] * count), (moved * count, after[1] * count))


def _matrix(kind: str, shape: Sequence[float]) -> tuple[float, float]:
    """Inputs and outputs of the matrix that a convolution or a linear layer is."""
    return (shape[0] * shape[4] ** 2, shape[3]) if kind == "conv" else (shape[1], shape[2])


def _forward(kind: str, name: str, shape: Sequence[float], dtype: str, batch: float) -> Operator:
    size = element(dtype)

    def tensor(called: str, elements: float) -> Term:
        return leaf(called, traffic.elementwise, "B", elements=elements, bytes_per_element=size, passes=1.0)

    if kind == "conv":
        channels, height, width, _, side, stride, padding = shape
        rows, columns = (float(flops.convolved_extent(extent + 2.0 * padding, side, stride, 0.0)) for extent in (height, width))
        m, (k, n) = batch * rows * columns, _matrix(kind, shape)
        parts = [tensor("input", batch * channels * height * width), tensor("kernel", n * k), tensor("output", m * n)]
        return Operator(name, leaf("FLOP", flops.gemm, "FLOP", m=m, n=n, k=k), total("bytes", parts), dtype, grid=(m, n))
    if kind == "linear":
        m, k, n = batch * shape[0], shape[1], shape[2]
        moved = leaf("bytes", traffic.gemm, "B", m=m, n=n, k=k, bytes_a=size, bytes_b=size, bytes_c=size)
        return Operator(name, leaf("FLOP", flops.gemm, "FLOP", m=m, n=n, k=k), moved, dtype, grid=(m, n))
    if kind == "product":
        m, k, n = shape
        moved = total("bytes", [leaf("one product", traffic.gemm, "B", m=m, n=n, k=k, bytes_a=size, bytes_b=size, bytes_c=size)], batch)
        return Operator(name, total("FLOP", [leaf("one product", flops.gemm, "FLOP", m=m, n=n, k=k)], batch), moved, dtype)
    if kind == "attention":
        heads, queries, keys, width = shape
        core = {"batch": batch, "seq_len": queries, "key_length": keys, "num_attention_heads": heads, "head_dim": width}
        ends = batch * heads * width
        parts = [tensor("queries and output", 2.0 * ends * queries), tensor("keys and values", 2.0 * ends * keys)]
        return Operator(name, leaf("FLOP", flops.attention_core, "FLOP", **core), total("bytes", parts), dtype)
    elements = batch * shape[0] * shape[1]
    work = flops.OPERATIONS[WORK[kind]] if kind in WORK else 1.0
    moved = leaf("bytes", traffic.elementwise, "B", elements=elements, bytes_per_element=size, passes=PASSES[kind][0])
    return Operator(name, leaf("FLOP", flops.elementwise, "FLOP", elements=elements, operations=work), moved, dtype, vector=True)


BATCHES = (
    Column("batch", "batch", "1"), Column("flop", "FLOPs a sample", "FLOP"), Column("training_flop", "in training", "FLOP"),
    Column("bytes", "bytes a sample", "B"), Column("training_bytes", "in training", "B"), Column("intensity", "FLOP/B", "1"),
    Column("forward_time", "forward, least", "s"), Column("step_time", "training step, least", "s"),
    Column("samples_per_second", "samples/s at most", "1"), Column("hbm_share", "of it hbm", "%"),
)  # fmt: skip
KINDS = (
    Column("kind", "kind"), Column("count", "runs", "1"), Column("parameters", "parameters", "1"), Column("flop", "FLOPs forward", "FLOP"),
    Column("bytes", "bytes forward", "B"), Column("flop_share", "of FLOPs", "%"), Column("bytes_share", "of bytes", "%"),
)  # fmt: skip
ROWS = (
    Column("operator", "operator"), Column("count", "count", "1"), Column("parameters", "parameters", "1"), Column("flop", "FLOPs", "FLOP"),
    Column("bytes", "bytes", "B"), Column("intensity", "FLOP/B", "1"), Column("roof", "roof"), Column("least_time", "least time", "s"),
)  # fmt: skip


def _at(device: roofs.Device, listed: dict[str, Any], dtype: str, batch: float, optimizer: str) -> tuple[list[Pass], dict[str, Any], Term]:
    """The passes at a batch, the row of the table, and the optimizer's bytes: of all but tables, whose rows the backward pass writes."""
    passes = [pass_of(item, dtype, batch) for item in listed["operators"]]
    dense = sum(p.parameters for p in passes if p.kind != "embedding")
    each = OPTIMIZERS[optimizer].traffic_bytes
    update = leaf("bytes of the update", traffic.optimizer_step, "B", parameters=dense, bytes_read_written=each)
    bandwidth = plain(device.bandwidth)
    forward = products = 0.0
    training = on_hbm = float(update.value) / bandwidth
    for one in passes:
        peak = plain(device.peak(one.forward))
        times = [(flop / peak, moved / bandwidth) for flop, moved in zip(one.flop, one.moved, strict=True)]
        forward += max(times[0])
        products += 0.0 if one.forward.vector else sum(compute for compute, _ in times)
        training += sum(max(pair) for pair in times)
        on_hbm += sum(hbm for compute, hbm in times if hbm > compute)
    ahead, both = sum(p.flop[0] for p in passes), sum(sum(p.flop) for p in passes)
    moved, all_moved = sum(p.moved[0] for p in passes), sum(sum(p.moved) for p in passes) + float(update.value)
    row = {
        "batch": batch, "parameters": sum(p.parameters for p in passes), "flop": ahead / batch, "training_flop": both / batch,
        "bytes": moved / batch, "training_bytes": all_moved / batch, "intensity": both / all_moved, "forward_time": forward,
        "step_time": training, "compute_time": products, "samples_per_second": batch / training, "hbm_share": on_hbm / training,
    }  # fmt: skip
    return passes, row, update


def _headline(
    device: roofs.Device, listed: dict[str, Any], found: tuple[list[Pass], dict[str, Any], Term], values: dict[str, Any], optimizer: str
) -> tuple[list[str], list[Term], bool]:
    passes, row, update = found
    batch = row["batch"]
    work = total("FLOP of a sample, forward", [_part(p, p.flop[0] / batch, "FLOP") for p in passes], unit="FLOP")
    moved = total("bytes of a sample, forward", [_part(p, p.moved[0] / batch, "B") for p in passes], unit="B")
    count = total("parameters", [_part(p, p.parameters, "1") for p in passes if p.parameters], unit="1")
    article = "an" if listed["sample"][0] in "aeiou" else "a"
    headline = [
        f"{units.show(float(count.value), 'parameter', 4)}; {article} {listed['sample']}: {units.show(row['flop'], 'FLOP', 4)} and "
        f"{units.show(row['bytes'], 'B', 4)} forward, {units.show(row['training_flop'], 'FLOP', 4)} and "
        f"{units.show(row['training_bytes'], 'B', 4)} in training (batch {batch:g})"
    ]
    headline.append(
        f"at the roofs of {device.name}: {units.show(row['forward_time'], 's', 4)} forward, {units.show(row['step_time'], 's', 4)} a "
        f"training step with {optimizer}, at most {row['samples_per_second']:,.0f} samples/s; hbm is the roof for "
        f"{row['hbm_share']:.0%} of it"
    )
    possible = True
    measured = values.get("measured")
    if "samples_per_second" in values:
        if measured is not None:
            raise QuestionError("give --measured or --samples-per-second, not both")
        measured = batch / values["samples_per_second"]
    if measured is not None:
        if len(values.get("batch", ())) > 1:
            raise QuestionError("a measured step is of one batch: give one --batch")
        told, possible = _judge(row, measured)
        headline.append(told)
    if "baseline" in values:
        told, passes_it = roofs.regression(values)
        headline, possible = [*headline, told], possible and passes_it
    return headline, [count, work, moved, update], possible


def _judge(row: Mapping[str, Any], measured: float) -> tuple[str, bool]:
    """A measured training step. No kernel does the products faster than the peak; fusion may do with fewer bytes than the list has."""
    told, products = f"measured {units.show(measured, 's', 4)} a step", row["compute_time"] / measured
    if products > 1.0:
        return (
            f"{told}: impossible, {products:.0%} of the compute roof by its products alone; wrong is the rate, the devices or the list",
            False,
        )
    share = row["step_time"] / measured
    if share > 1.0:
        return f"{told}: {share:.0%} of the roofs without fusion, {products:.0%} of the compute roof: its kernels are fused", True
    return f"{told}: {share:.0%} of the roofs, {products:.0%} of the compute roof", True


def _part(one: Pass, value: float, unit: str) -> Term:
    return Term(one.name, value, unit)


def _kinds(passes: Sequence[Pass]) -> list[dict[str, Any]]:
    rows: dict[str, dict[str, Any]] = {}
    for one in passes:
        row = rows.setdefault(one.kind, {"kind": one.kind, "count": 0.0, "parameters": 0.0, "flop": 0.0, "bytes": 0.0})
        row["count"] += one.count
        row["parameters"] += one.parameters
        row["flop"] += one.flop[0]
        row["bytes"] += one.moved[0]
    every = {name: sum(row[name] for row in rows.values()) for name in ("flop", "bytes")}
    return [{**row, "flop_share": row["flop"] / every["flop"], "bytes_share": row["bytes"] / every["bytes"]} for row in rows.values()]


def _rows(device: roofs.Device, passes: Sequence[Pass]) -> list[dict[str, Any]]:
    made = []
    for one in passes:
        u = roofs.under(device, one.forward)
        made.append({
            "operator": one.name, "kind": one.kind, "count": one.count, "parameters": one.parameters or None, "flop": one.flop[0],
            "bytes": one.moved[0], "intensity": float(u.intensity.value), "roof": u.bound, "least_time": float(u.floor.value) * one.count,
        })  # fmt: skip
    return sorted(made, key=lambda row: -row["least_time"])
