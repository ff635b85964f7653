"""One operator, the two kernels of attention, or a file of operators under the roofs of a device."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from ironlaw import units
from ironlaw.cautions.record import Sentence
from ironlaw.cautions.table import caution
from ironlaw.errors import ValueRangeError
from ironlaw.law import collectives
from ironlaw.question.assumptions import Assumptions, assume
from ironlaw.questions.answer import Answer, Column, Table, filled_columns
from ironlaw.questions.roofline import attention, operators, plot, roofs
from ironlaw.questions.roofline.operators import Operator
from ironlaw.questions.roofline.options import ACTIVATIONS
from ironlaw.questions.roofline.roofs import Device, RooflinePoint, show
from ironlaw.terms import Term, leaf, plain, scalar, total

TILE = (128.0, 256.0)
OPERATORS = (
    Column("operator", "operator"), Column("count", "count", "1"), Column("flop", "FLOPs", "FLOP"), Column("bytes", "bytes", "B"),
    Column("intensity", "FLOP/B", "1"), Column("roof", "roof"), Column("least_time", "least time", "s"),
    Column("expected_time", "expected", "s"), Column("times_relu", "times relu", "1"), Column("waves", "waves", "1"),
    Column("wave_efficiency", "busy", "%"), Column("measured", "measured", "s"), Column("hbm_fraction", "of hbm", "%"),
    Column("compute_fraction", "of compute", "%"), Column("verdict", "verdict"),
)  # fmt: skip


def answer(question: str, values: dict[str, Any], folders: tuple[str, ...]) -> Answer:
    """The roof, least time and expected time of each operator; a verdict where a time was measured."""
    notes: Assumptions = []
    device = roofs.bind_device(values, folders, notes)
    if question != "optimizer":
        values = roofs.bind_dtype(values, folders, notes)
    tile = values.get("tile", TILE)
    asked = operators.read_operators(values["shapes"], values) if question == "shapes" else _asked_operators(question, values, notes)
    points = [roofs.roofline_point(device, operator) for operator in asked]
    if any(operator.vector for operator in asked) and "fp32" not in device.peaks and "given" not in device.peaks:
        assume(notes, "vector rate", "the matrix rate: the catalogue has no fp32 rate", "default")
    if any(operator.grid for operator in asked) and device.multiprocessors is not None and "tile" not in values:
        assume(notes, "tile", "128 x 256", "default")
    if question == "attention":
        points = attention.with_expected_times(device, points, values, folders)
    rows = [_operator_row(device, point, tile) for point in points]
    extra: dict[str, Any] = {}
    versions: list[Table] = []
    if question == "attention":
        headline, terms, extra = attention.compare_kernels(device, points, values)
        versions = attention.compare_versions(device, values, folders)
    elif question == "activation" and values["activation"][0] == "all":
        headline, terms = _compare_activations(points)
        rows = [{**row, "times_relu": _time(point) / _time(points[0])} for row, point in zip(rows, points, strict=True)]
    elif len(points) > 1:
        headline, terms = _sum_operators(points)
    else:
        headline, terms = _describe_operator(device, points[0], tile)
    tables = _make_tables(device, points, rows, values)
    impossible = [row["operator"] for row in rows if row.get("verdict") == "impossible"]
    feasible = not impossible
    lines, passes = roofs.compare_with_baseline(values)
    headline, feasible = [*headline, *lines], feasible and passes
    warnings = [caution("above-roof", operator=operator) for operator in impossible]
    return Answer(f"Roofline on {device.name}", headline, [*tables, *versions], terms, extra, notes, warnings, feasible, folders)


def _asked_operators(question: str, values: dict[str, Any], notes: Assumptions) -> list[Operator]:
    """The operators of the options: one for each shape and batch; of attention two."""
    asked = [
        replace(operator, batch=batch if "batch" in values else None)
        for batch in values.get("batch", (1.0,))
        for shape in _asked_shapes(question, values)
        for operator in operators.make_operators(question, shape, values, batch)
    ]
    if "measured" in values:
        if len(values.get("batch", ())) > 1 or len(values.get("lengths", ())) > 1:
            raise ValueRangeError("--measured is the time of one operator: give one --batch and one length, or a file with --shapes")
        asked[0] = replace(asked[0], measured=values["measured"])  # of attention the flash kernel is measured
    if question == "attention" and "causal" not in values:
        assume(notes, "causal", "on", "default")
    return asked


def _asked_shapes(question: str, values: Mapping[str, Any]) -> list[Any]:
    """The shapes of the options: one, one for each length of attention, or one for each activation function."""
    if question == "attention":
        return attention.asked_shapes(values)
    shape = values[question]
    return [(name, *shape[1:]) for name in ACTIVATIONS] if question == "activation" and shape[0] == "all" else [shape]


def _make_tables(device: Device, points: list[RooflinePoint], rows: list[dict[str, Any]], values: Mapping[str, Any]) -> list[Table]:
    """The operators; the time of a single one at each roof; the drawing with --plot."""
    columns = filled_columns([column for column in OPERATORS if column.key != "verdict" or len(rows) > 1], rows)
    tables = [Table("operators", f"Operators on {device.name}", columns, rows)]
    if len(points) == 1:
        tables.append(_roof_table(device, points[0]))
    if values.get("plot"):
        tables.append(_draw_points(device, points, [row["operator"] for row in rows]))
    return tables


def _draw_points(device: Device, points: list[RooflinePoint], names: list[str]) -> Table:
    """The operators at the rate that was measured, or else at the most that their roofs allow, each under the roof of its own format."""
    peaks = {device.peak_name(point.operator): plain(point.peak) for point in points}
    drawn = []
    for name, point in zip(names, points, strict=True):
        measured, intensity = point.operator.measured, scalar(point.intensity)
        rate = scalar(point.operator.flop) / measured if measured else scalar(point.attainable)
        drawn.append(plot.PlotPoint(name, intensity, rate, device.peak_name(point.operator)))
    return plot.plot_table(peaks, plain(device.bandwidth), drawn)


def _operator_row(device: Device, point: RooflinePoint, tile: tuple[float, float]) -> dict[str, Any]:
    """The row of one operator: FLOPs, bytes, times at the roofs, waves, and the verdict on a measured time."""
    operator, waves = point.operator, roofs.count_waves(device, point.operator, tile)
    flop, moved, measured = scalar(operator.flop), scalar(operator.traffic), operator.measured
    row: dict[str, Any] = {
        "operator": operator.name if operator.batch is None else f"{operator.name}, batch {operator.batch:.0f}",
        "count": operator.count if operator.count != 1.0 else None,
        "batch": operator.batch,
        "dtype": operator.dtype,
        "flop": flop,
        "bytes": moved,
        "intensity": scalar(point.intensity),
        "attainable_rate": scalar(point.attainable),
        "ridge_point": scalar(point.ridge),
        "roof": point.bound,
        "least_time": scalar(point.least),
        "expected_time": None if point.expected is None else scalar(point.expected),
        "waves": None if waves is None else scalar(waves[0]),
        "wave_efficiency": None if waves is None else scalar(waves[1]),
        "measured": measured,
    }
    if measured is not None:
        shares = {name: scalar(term) for name, term in roofs.roof_fractions(point, measured).items()}
        verdict = roofs.judge(device, point, measured)
        row |= {"hbm_fraction": shares["hbm"], "compute_fraction": shares["compute"], "verdict": verdict.word, "why": verdict.text}
        row |= {"implied_bandwidth": moved / measured, "implied_rate": flop / measured}
    return row


def _describe_operator(device: Device, point: RooflinePoint, tile: tuple[float, float]) -> tuple[list[str], list[Term]]:
    """Headline and terms of one operator."""
    operator = point.operator
    terms = [operator.flop, operator.traffic, point.intensity, point.ridge, point.attainable, point.least]
    side = "below" if point.bound == "hbm" else "above"
    values = {name: scalar(term) for name, term in (("flop", operator.flop), ("bytes", operator.traffic), ("intensity", point.intensity))}
    times = {"least_seconds": scalar(point.least), "attainable_rate": scalar(point.attainable)}
    lines: list[str] = [
        Sentence(
            f"{operator.name} ({operator.dtype}): {show(operator.flop)}, at least {show(operator.traffic)}, {show(point.intensity)}; "
            f"{side} the ridge of {show(point.ridge)}, so {point.bound}-bound",
            "bound", {"by": point.bound, "ridge": scalar(point.ridge), **values},
        ),
        Sentence(
            f"at least {show(point.least)}, at most {show(point.attainable)}"
            + ("" if point.expected is None else f"; expected in a training step: {show(point.expected)}"),
            "time", times,
        ),
    ]  # fmt: skip
    if point.expected is not None:
        terms.append(point.expected)
    waves = roofs.count_waves(device, operator, tile)
    if waves is not None:
        count = scalar(waves[0])
        lines.append(
            f"{waves[0].inputs['tiles']:.0f} tiles of {tile[0]:.0f} x {tile[1]:.0f} in {count:.0f} {'wave' if count == 1.0 else 'waves'}"
            f" over {plain(device.multiprocessors):.0f} multiprocessors: {scalar(waves[1]):.1%} busy"
        )
        terms += waves
    if operator.measured is not None:
        bandwidth = leaf("implied bandwidth", collectives.algorithm_bandwidth, "B/s", size=operator.traffic.value, time=operator.measured)
        rate = leaf("implied rate", _rate, "FLOP/s", flop=operator.flop.value, time=operator.measured)
        verdict = roofs.judge(device, point, operator.measured)
        lines.append(f"measured {units.show(operator.measured, 's', 4)}: {show(bandwidth)} and {show(rate)}, {verdict.text}")
        terms += [bandwidth, rate, *roofs.roof_fractions(point, operator.measured).values()]
    return lines, terms


def _rate(flop: Any, time: Any) -> Any:
    """Operations per second of a measured time: ``flop / time``."""
    return flop / time


def _sum_operators(points: list[RooflinePoint]) -> tuple[list[str], list[Term]]:
    """Headline and terms of several operators together, or of one at several batches."""
    least = total("least time of all", [total(p.operator.name, [p.least], times=p.operator.count) for p in points])
    moved = total("bytes of all", [total(p.operator.name, [p.operator.traffic], times=p.operator.count) for p in points])
    flop = total("FLOP of all", [total(p.operator.name, [p.operator.flop], times=p.operator.count) for p in points])
    bound = sum(point.bound == "hbm" for point in points)
    lines = [f"{len(points)} operators: {bound} hbm-bound, {len(points) - bound} compute-bound"]
    crossed = next((point for point in points if point.bound == "compute"), None)
    if points[0].operator.batch is None:
        lines.append(f"together {show(flop)}, {show(moved)}, at least {show(least)}")
    elif crossed is None:
        lines.append("none of these batches is compute-bound")
    else:
        lines.append(f"compute-bound from batch {crossed.operator.batch:.0f} on ({show(crossed.intensity)}, ridge {show(crossed.ridge)})")
    return lines, [flop, moved, least]


def _time(point: RooflinePoint) -> float:
    return scalar(point.expected or point.least)


def _compare_activations(points: list[RooflinePoint]) -> tuple[list[str], list[Term]]:
    """Headline and terms of all activation functions: bytes set their time, not the operations."""
    times = {point.operator.name.split()[0]: _time(point) for point in points}
    flop = {point.operator.name.split()[0]: scalar(point.operator.flop) for point in points}
    as_long = times["gelu"] < 1.05 * times["relu"]
    lines = [
        f"gelu does {flop['gelu'] / flop['relu']:.3g} times the FLOPs of relu "
        + ("and takes as long: bytes set the time" if as_long else f"and takes {times['gelu'] / times['relu']:.3g} times as long"),
        f"gated functions read two tensors: swiglu takes {times['swiglu'] / times['relu']:.3g} times as long as relu",
        "every operation counts as one FLOP: the cost of an exponential differs by device and matters only where hbm is not the roof",
    ]
    return lines, [points[0].operator.flop, points[0].operator.traffic, points[0].least]


def _roof_table(device: Device, point: RooflinePoint) -> Table:
    """Time of the operator at each roof, its ridge point, and the share of the measured time."""
    measured, moved = point.operator.measured, scalar(point.operator.traffic)
    peak = plain(point.peak)
    rows: list[dict[str, Any]] = [{"roof": "compute", "rate": units.show(peak, "FLOP/s", 4), "time": scalar(point.compute)}]
    for name, rate in {"hbm": device.bandwidth, **device.links}.items():
        value = plain(rate)
        rows.append({"roof": name, "rate": units.show(value, "B/s", 4), "ridge_point": peak / value, "time": moved / value})
    if device.dispatch is not None:
        rows.append({"roof": "dispatch", "rate": "one launch", "time": plain(device.dispatch)})
    for row in rows:
        row["fraction"] = row["time"] / measured if measured else None
    columns = [Column("roof", "roof"), Column("rate", "rate"), Column("ridge_point", "ridge FLOP/B", "1"), Column("time", "time", "s")]
    columns += [Column("fraction", "of the measured time", "%")] if measured else []
    return Table("roofs", "Time at each roof, if it carried all bytes", tuple(columns), rows)
