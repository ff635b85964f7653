"""The roofs of a device alone: ridge points by format and link."""

from __future__ import annotations

from typing import Any

from ironlaw import units
from ironlaw.law import kernels
from ironlaw.precision import PRECISIONS
from ironlaw.question.assumptions import Assumptions
from ironlaw.questions.answer import Answer, Column, Table
from ironlaw.questions.roofline import operators, roofs
from ironlaw.terms import leaf, plain


def answer(_question: str, values: dict[str, Any], folders: tuple[str, ...]) -> Answer:
    """Peaks, bandwidths and ridge points of a device; with --dtype of one format."""
    notes: Assumptions = []
    device = roofs.bind_device(values, folders, notes)
    wanted = values["dtype"][0] if "dtype" in values else None
    if wanted is not None and "given" not in device.peaks:
        device.peak(operators.make_operators("gemm", (1.0, 1.0, 1.0), values)[0])  # refuses a format the device lacks
    rows, terms = [], []
    for name, peak in device.peaks.items():
        if wanted is not None and name not in (PRECISIONS[wanted].peak, "given"):
            continue
        ridge = leaf(f"ridge point {name}", kernels.ridge_point, "FLOP/B", peak=peak, bandwidth=device.bandwidth)
        links = {link: float(kernels.ridge_point(plain(peak), plain(rate))) for link, rate in device.links.items()}
        without_reuse = plain(peak) * operators.element_bytes(name if name in PRECISIONS else "bf16")  # one new operand an operation
        rows.append({"format": name, "peak": plain(peak), "hbm": float(ridge.value), **links, "without_reuse": without_reuse})
        terms.append(ridge)
    columns = (
        Column("format", "format"),
        Column("peak", "peak", "FLOP/s"),
        Column("hbm", "ridge hbm", "1"),
        *(Column(link, f"ridge {link}", "1") for link in device.links),
        Column("without_reuse", "bandwidth without reuse", "B/s"),
    )
    headline = [f"hbm {units.show(plain(device.bandwidth), 'B/s', 4)}"]
    headline += [f"{name} {units.show(plain(rate), 'B/s', 4)} per accelerator, one direction" for name, rate in device.links.items()]
    if device.multiprocessors is not None:
        headline.append(f"{plain(device.multiprocessors):.0f} multiprocessors")
    if device.dispatch is not None:
        headline.append(f"one launch takes the host {units.show(plain(device.dispatch), 's', 3)}")
    title = f"Roofs of {device.name}: a kernel below a ridge point (FLOP/B) is limited by that link"
    return Answer(title, headline, [Table("ridges", "Ridge points", columns, rows)], terms, assumptions=notes, folders=folders)
