"""One operator, the two ways of attention, a list of operators, or a device alone, under the roofs of a device."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from ironlaw import units
from ironlaw.errors import ValueRangeError
from ironlaw.estimate.bind.cluster import bind_precision
from ironlaw.job import PRECISIONS
from ironlaw.law import collectives, kernels
from ironlaw.question.assumptions import Assumptions, assume
from ironlaw.questions.answer import Answer, Column, Table
from ironlaw.questions.roofline import attention, operators, roofs
from ironlaw.questions.roofline.ask import ACTIVATIONS
from ironlaw.terms import Term, leaf, plain, total

TILE = (128.0, 256.0)
ROWS = (
    Column("operator", "operator"),
    Column("count", "count", "1"),
    Column("flop", "FLOPs", "FLOP"),
    Column("bytes", "bytes", "B"),
    Column("intensity", "FLOP/B", "1"),
    Column("roof", "roof"),
    Column("least_time", "least time", "s"),
    Column("expected_time", "expected", "s"),
    Column("times_relu", "times relu", "1"),
    Column("waves", "waves", "1"),
    Column("wave_efficiency", "busy", "%"),
    Column("measured", "measured", "s"),
    Column("hbm_fraction", "of hbm", "%"),
    Column("compute_fraction", "of compute", "%"),
    Column("verdict", "verdict"),
)


def answer(question: str, values: dict[str, Any], folders: tuple[str, ...]) -> Answer:
    """The answer of an operator, of a file of them, or of the device where nothing else is asked."""
    notes: Assumptions = []
    device = roofs.bind(values, folders, notes)
    if question == "on":
        return _device(device, notes, folders, values)
    if "dtype" not in values and question != "optimizer":
        name = bind_precision(values["on"], folders) if "on" in values else "bf16"
        values = {**values, "dtype": (name, name, name)}
        assume(notes, "dtype", name, "default")
    tile = values.get("tile", TILE)
    asked = operators.of_file(values["shapes"], values) if question == "shapes" else _asked(question, values, notes)
    found = [roofs.under(device, one) for one in asked]
    if any(one.vector for one in asked) and "fp32" not in device.peaks and "given" not in device.peaks:
        assume(notes, "vector rate", "the matrix rate: the catalogue has no fp32 rate", "default")
    if any(one.grid for one in asked) and device.multiprocessors is not None and "tile" not in values:
        assume(notes, "tile", "128 x 256", "default")
    extra: dict[str, Any] = {}
    if question == "attention":
        found = attention.with_expected(device, found, values, folders)
        headline, terms, extra = attention.headline(device, found, values)
    else:
        headline, terms = _summary(found) if len(found) > 1 else _headline(device, found[0], tile)
    if question == "activation" and values["activation"][0] == "all":
        headline, terms = _functions(found)
    rows = [_row(device, u, tile) for u in found]
    if question == "activation" and values["activation"][0] == "all":
        rows = [{**row, "times_relu": (row["expected_time"] or row["least_time"]) / _time(found[0])} for row in rows]
    bad = [row for row in rows if row.get("verdict") == "impossible"]
    possible = not bad
    if "baseline" in values:
        told, passes = roofs.regression(values)
        headline, possible = [*headline, told], possible and passes
    warnings = [f"{row['operator']}: a measured time above a roof is impossible" for row in bad]
    tables = _tables(device, found, rows, values) + (attention.versions(device, values, folders) if question == "attention" else [])
    return Answer(f"Roofline on {device.name}", headline, tables, terms, extra, notes, warnings, possible, folders)


def _asked(question: str, values: dict[str, Any], notes: Assumptions) -> list[operators.Operator]:
    """The operators of the options: one, or one for each batch; of attention two."""
    asked: list[operators.Operator] = []
    for batch in values.get("batch", (1.0,)):
        for shape in _shapes(question, values):
            made = operators.of(question, shape, values, batch)
            asked += [replace(one, batch=batch if "batch" in values else None) for one in made]
    if "measured" in values:
        if len(values.get("batch", ())) > 1 or len(values.get("lengths", ())) > 1:
            raise ValueRangeError("--measured is of one operator: give one --batch and one length, or a list of operators by --shapes")
        asked[0] = replace(asked[0], measured=values["measured"])  # of attention the flash kernel is measured
    if question == "attention" and "causal" not in values:
        assume(notes, "causal", "on", "default")
    return asked


def _shapes(question: str, values: Mapping[str, Any]) -> list[Any]:
    """The shapes asked for: one, one for each length of attention, or one for each activation function."""
    if question == "attention":
        return list(attention.shapes(values))
    shape = values[question]
    return [(name, *shape[1:]) for name in ACTIVATIONS] if question == "activation" and shape[0] == "all" else [shape]


def _tables(device: roofs.Device, found: list[roofs.Under], rows: list[dict[str, Any]], values: Mapping[str, Any]) -> list[Table]:
    """The operators; of a single one the roofs; the drawing where it is asked."""
    shown = tuple(c for c in ROWS if any(row.get(c.key) is not None for row in rows) and not (c.key == "verdict" and len(rows) == 1))
    tables = [Table("operators", f"Operators on {device.name}", shown, rows)]
    if len(found) == 1:
        tables.append(_roof_table(device, found[0]))
    if values.get("plot"):
        names = [row["operator"] for row in rows]
        lines = [{"line": line} for line in roofs.plot(device, dict(zip(names, found, strict=True)))]
        tables.append(Table("plot", "Roofline", (Column("line", "FLOP/s over FLOP/B, both logarithmic"),), lines))
    return tables


def _row(device: roofs.Device, u: roofs.Under, tile: tuple[float, float]) -> dict[str, Any]:
    one, waves = u.operator, roofs.wave_terms(device, u.operator, tile)
    row: dict[str, Any] = {
        "operator": one.name if one.batch is None else f"{one.name}, batch {one.batch:.0f}",
        "count": one.count if one.count != 1.0 else None,
        "batch": one.batch,
        "dtype": one.dtype,
        "flop": float(one.flop.value),
        "bytes": float(one.traffic.value),
        "intensity": float(u.intensity.value),
        "attainable_rate": float(u.attainable.value),
        "ridge_point": float(u.ridge.value),
        "roof": u.bound,
        "least_time": float(u.floor.value),
        "expected_time": None if u.expected is None else float(u.expected.value),
        "waves": None if waves is None else float(waves[0].value),
        "wave_efficiency": None if waves is None else float(waves[1].value),
        "measured": one.measured,
    }
    if one.measured is not None:
        shares = {name: float(term.value) for name, term in roofs.fractions(u, one.measured).items()}
        judged = roofs.judge(device, u, one.measured)
        row |= {"hbm_fraction": shares["hbm"], "compute_fraction": shares["compute"], "verdict": judged.word, "why": judged.text}
        row |= {"implied_bandwidth": row["bytes"] / one.measured, "implied_rate": row["flop"] / one.measured}
    return row


def _headline(device: roofs.Device, u: roofs.Under, tile: tuple[float, float]) -> tuple[list[str], list[Term]]:
    one = u.operator
    terms = [one.flop, one.traffic, u.intensity, u.ridge, u.attainable, u.floor]
    below = "below" if u.bound == "hbm" else "above"
    lines = [
        f"{one.name} ({one.dtype}): {_show(one.flop)}, at least {_show(one.traffic)}, {_show(u.intensity)}; "
        f"{below} the ridge of {_show(u.ridge)}, so {u.bound} binds",
        f"at least {_show(u.floor)}, at most {_show(u.attainable)}"
        + ("" if u.expected is None else f"; expected inside a step: {_show(u.expected)}"),
    ]
    terms += [] if u.expected is None else [u.expected]
    waves = roofs.wave_terms(device, one, tile)
    if waves is not None:
        lines.append(
            f"{waves[0].inputs['tiles']:.0f} tiles of {tile[0]:.0f} x {tile[1]:.0f} in {float(waves[0].value):.0f} waves over "
            f"{plain(device.multiprocessors):.0f} multiprocessors: {float(waves[1].value):.1%} busy"
        )
        terms += waves
    if one.measured is not None:
        rate = leaf("implied bandwidth", collectives.algorithm_bandwidth, "B/s", size=one.traffic.value, time=one.measured)
        work = leaf("implied rate", _rate, "FLOP/s", flop=one.flop.value, time=one.measured)
        row = _row(device, u, tile)
        lines.append(f"measured {units.show(one.measured, 's', 4)}: {_show(rate)} and {_show(work)}, {row['why']}")
        terms += [rate, work, *roofs.fractions(u, one.measured).values()]
    return lines, terms


def _summary(found: list[roofs.Under]) -> tuple[list[str], list[Term]]:
    """What many operators are together."""
    least = total("least time of all", [_times(u.floor, u.operator) for u in found])
    moved = total("bytes of all", [_times(u.operator.traffic, u.operator) for u in found])
    work = total("FLOP of all", [_times(u.operator.flop, u.operator) for u in found])
    bound = sum(u.bound == "hbm" for u in found)
    lines = [f"{len(found)} operators: {bound} under the hbm roof, {len(found) - bound} under the compute roof"]
    if found[0].operator.batch is None:
        lines.append(f"all of them: {_show(work)}, {_show(moved)}, at least {_show(least)}")
    else:
        crossed = next((u for u in found if u.bound == "compute"), None)
        lines.append(
            "no batch of these reaches the compute roof"
            if crossed is None
            else f"the compute roof binds from batch {crossed.operator.batch:.0f} on "
            f"({_show(crossed.intensity)}, ridge {_show(crossed.ridge)})"
        )
    return lines, [work, moved, least]


def _time(u: roofs.Under) -> float:
    return float((u.expected or u.floor).value)


def _functions(found: list[roofs.Under]) -> tuple[list[str], list[Term]]:
    """What activation functions are side by side: bytes set their time, not the operations."""
    times = {u.operator.name.split()[0]: _time(u) for u in found}
    work = {u.operator.name.split()[0]: float(u.operator.flop.value) for u in found}
    lines = [
        f"gelu does {work['gelu'] / work['relu']:.3g} times the FLOPs of relu and takes {times['gelu'] / times['relu']:.3g} times as long: "
        + ("bytes set the time" if times["gelu"] < 1.05 * times["relu"] else "operations begin to count"),
        f"gated functions read two tensors: swiglu takes {times['swiglu'] / times['relu']:.3g} times as long as relu",
        "operations are counted as one each; what an exponential costs differs by device, and only shows where hbm is not the roof",
    ]
    return lines, [term for u in found[:1] for term in (u.operator.flop, u.operator.traffic, u.floor)]


def _times(term: Term, operator: operators.Operator) -> Term:
    return total(operator.name, [term], times=operator.count)


def _roof_table(device: roofs.Device, u: roofs.Under) -> Table:
    """Time of the operator at each named roof, its ridge, and what a measurement reaches of it."""
    measured, moved = u.operator.measured, float(u.operator.traffic.value)
    peak = plain(u.peak)
    rows: list[dict[str, Any]] = [{"roof": "compute", "rate": units.show(peak, "FLOP/s", 4), "time": float(u.compute.value)}]
    for name, rate in {"hbm": device.bandwidth, **device.links}.items():
        value = plain(rate)
        rows.append({"roof": name, "rate": units.show(value, "B/s", 4), "ridge_point": peak / value, "time": moved / value})
    if device.dispatch is not None:
        rows.append({"roof": "dispatch", "rate": "one launch", "time": plain(device.dispatch)})
    for row in rows:
        row["fraction"] = row["time"] / measured if measured else None
    columns = [Column("roof", "roof"), Column("rate", "rate"), Column("ridge_point", "ridge FLOP/B", "1"), Column("time", "time", "s")]
    columns += [Column("fraction", "of the measured time", "%")] if measured else []
    return Table("roofs", "Time at each roof, were all bytes to cross it", tuple(columns), rows)


def _device(device: roofs.Device, notes: Assumptions, folders: tuple[str, ...], values: Mapping[str, Any]) -> Answer:
    """The roofs of a device: ridge points by format and link."""
    rows, terms = [], []
    wanted = values["dtype"][0] if "dtype" in values else None
    if wanted is not None and "given" not in device.peaks:
        device.peak(operators.of("gemm", (1.0, 1.0, 1.0), values)[0])  # refuses a format the device lacks
    for name, peak in device.peaks.items():
        if wanted is not None and name not in (PRECISIONS[wanted].peak, "given"):
            continue
        ridge = leaf(f"ridge point {name}", kernels.ridge_point, "FLOP/B", peak=peak, bandwidth=device.bandwidth)
        row: dict[str, Any] = {"format": name, "peak": plain(peak), "hbm": float(ridge.value)}
        row |= {link: float(kernels.ridge_point(plain(peak), plain(rate))) for link, rate in device.links.items()}
        known = name if name in PRECISIONS else "bf16"
        row["without_reuse"] = plain(peak) * operators.element(known)  # one new operand an operation
        rows.append(row)
        terms.append(ridge)
    columns = [Column("format", "format"), Column("peak", "peak", "FLOP/s"), Column("hbm", "ridge hbm", "1")]
    columns += [Column(link, link, "1") for link in device.links]
    columns.append(Column("without_reuse", "needed without reuse", "B/s"))
    bandwidths = {"hbm": device.bandwidth, **device.links}
    headline = [
        f"{name} {units.show(plain(rate), 'B/s', 4)} for each accelerator, one direction" if name != "hbm" else f"hbm {_text(rate)}"
        for name, rate in bandwidths.items()
    ]
    if device.multiprocessors is not None:
        headline.append(f"{plain(device.multiprocessors):.0f} multiprocessors")
    if device.dispatch is not None:
        headline.append(f"one launch takes the host {units.show(plain(device.dispatch), 's', 3)}")
    title = f"Roofs of {device.name}: a kernel below a ridge point (FLOP/B) is bound by that link"
    return Answer(title, headline, [Table("ridges", "Ridge points", tuple(columns), rows)], terms, {}, notes, folders=folders)


def _text(rate: Any) -> str:
    return units.show(plain(rate), "B/s", 4)


def _show(term: Term) -> str:
    return units.show(float(term.value), term.unit, 4)


def _rate(flop: Any, time: Any) -> Any:
    """Operations done in a measured time: ``flop / time``."""
    return flop / time
