"""The page of a validation, for the terminal and as ``docs/validation.md``."""

from __future__ import annotations

import math
import tomllib
from collections.abc import Iterator
from typing import Any

from ironlaw.question.defaults import CERTAINTY
from ironlaw.report.terminal import markdown_table
from ironlaw.validate.fit import constants
from ironlaw.validate.runs import DATA
from ironlaw.validate.score import Scored, Summary, baseline_data, headline, mixtures, skip_counts
from ironlaw.validate.session import CALCULON, Validation, exact_points

_WORST = 8


def percent(value: float | None, signed: bool = False) -> str:
    """A share in per cent; a dash where there is none.

    >>> percent(0.0312), percent(-0.1, signed=True), percent(None)
    ('3.1 %', '-10.0 %', '-')
    """
    if value is None or math.isnan(value):
        return "-"
    return f"{100 * value:+.1f} %" if signed else f"{100 * value:.1f} %"


def group_rows(validation: Validation, by: str) -> list[tuple[str, ...]]:
    """A line for every group: held-out errors, bands, in-sample error and the two baselines."""
    in_sample = {s.key: s for s in validation.in_sample.groups(by)}
    bases = baseline_data(validation.held_out)
    device, level = (bases[name]["families"] for name in ("one efficiency a device", "the family's own level"))
    return [_table_row(s, in_sample.get(s.key), device.get(s.key), level.get(s.key)) for s in validation.held_out.groups(by)]


def _table_row(s: Summary, in_sample: Summary | None, device: float | None, level: float | None) -> tuple[str, ...]:
    """One group as the cells of the table of errors."""
    return (
        s.key,
        str(s.n),
        percent(s.median_abs_error),
        percent(s.p90_abs_error),
        percent(s.worst, signed=True),
        percent(s.bias, signed=True),
        "-" if s.band_coverage is None else f"{s.band_coverage:.0%}",
        percent(s.band_width),
        percent(in_sample.median_abs_error if in_sample else None),
        percent(device),
        percent(level),
    )


HEADER = ("group", "n", "median", "p90", "worst", "bias", "in band", "band width", "in sample", "one efficiency", "own level")


def text(validation: Validation, by: str = "family") -> str:
    """The validation in a terminal."""
    lines = [
        f"{validation.rows} runs, {len(validation.held_out.prepared.runs)} scored, {len(validation.held_out.skipped)} skipped",
        *_headline(validation),
        "",
    ]
    table = [HEADER, *group_rows(validation, by)]
    widths = [max(len(row[k]) for row in table) for k in range(len(HEADER))]
    for row in table:
        lines.append("  ".join(cell.ljust(w) if k == 0 else cell.rjust(w) for k, (cell, w) in enumerate(zip(row, widths, strict=True))))
    lines += ["", "worst of the headline:", *(f"  {line}" for line in worst(validation.held_out))]
    if validation.memory is not None:
        lines += ["", *memory_lines(validation.memory)]
    counts = skip_counts(validation.held_out.skipped)
    if counts:
        lines += ["", "skipped:", *(f"  {n:>4}  {reason}" for reason, n in counts.items())]
    return "\n".join(lines)


def _headline(validation: Validation) -> Iterator[str]:
    """The headline errors in sentences: dense runs, bands, mixtures, and Calculon's points."""
    held_out, in_sample = headline(validation.held_out), headline(validation.in_sample)
    if held_out["family_median_abs_error"] is None:
        yield "no headline: no dense pre-training row with known recompute"
        return
    yield (
        f"headline, each family with constants fitted without it: median over families {percent(held_out['family_median_abs_error'])},"
        f" all rows {percent(held_out['pooled_median_abs_error'])}, p90 {percent(held_out['p90_abs_error'])},"
        f" bias {percent(held_out['bias'], signed=True)}"
        f" (in sample {percent(in_sample['family_median_abs_error'])})"
    )
    yield f"80 % bands contain {percent(held_out['band_coverage'])} of a family's rows, median width {percent(held_out['band_width'])}"
    mixed = mixtures(validation.held_out)
    if mixed.n:
        yield (
            f"mixtures of experts with known recompute, without any constant fitted on mixtures: median {percent(mixed.median_abs_error)},"
            f" p90 {percent(mixed.p90_abs_error)}, n {mixed.n}"
        )
    points = exact_points(validation.held_out)
    if points is not None:
        yield f"Calculon's eight A100 points, held out: mean error {percent(points)} (Calculon, tuned on them: {percent(CALCULON)})"


def worst(scored: Scored, count: int = _WORST) -> list[str]:
    """The headline rows with the largest errors."""
    p = scored.prepared
    order = sorted((i for i in range(len(p.runs)) if p.counts[i]), key=lambda i: -abs(float(scored.error[i])))
    return [
        f"{p.runs[i].id}  {p.runs[i].cells.get('model_name', '')} on {p.runs[i].cells.get('gpus', '')} x {p.hardware[i]}:"
        f" predicted {scored.predicted[i]:.3g} s, measured {p.measured[i]:.3g} s, {percent(float(scored.error[i]), signed=True)}"
        for i in order[:count]
    ]


def memory_lines(memory: dict[str, Any]) -> Iterator[str]:
    """The figures of measured memory."""
    yield f"memory, allocated peaks of at least 2 GiB: {_figures(memory)}"
    names = ("dense", "moe", "hidden_4096", "muon", "fp16", "small", "reserved", "device")
    for name in names:
        if memory.get(name, {}).get("n"):
            yield f"  {name}: {_figures(memory[name])}"
    for family, found in memory.get("coverage", {}).items():
        yield (
            f"  {family}, by the spread of the other families: {found['in_band']:.0%} of {found['n']} rows in the 80 % band of device"
            f" memory, {found['within_margin']:.0%} within what the margin allows for (meant: {CERTAINTY:.0%})"
        )
    if memory.get("fits_false") is not None:
        yield f"  predicted not to fit, but ran: {percent(memory['fits_false'])} of {memory['ran']}"
    for reason, n in memory["skipped"].items():
        yield f"  skipped {n}: {reason}"


def _figures(f: dict[str, Any]) -> str:
    return f"median {percent(f['median_abs_error'])}, p90 {percent(f['p90_abs_error'])}, bias {percent(f['bias'], signed=True)}, n {f['n']}"


# --- the page ------------------------------------------------------------------------------------------------------------


def markdown(validation: Validation) -> str:
    """The page ``docs/validation.md``."""
    return "\n".join([*_intro(validation), "", *markdown_table(HEADER, group_rows(validation, "family")), "", *_rest(validation)]) + "\n"


def _intro(validation: Validation) -> Iterator[str]:
    """What the page shows, and how the errors are computed."""
    yield "# How wrong ironlaw is\n"
    yield "`ironlaw validate` writes this page from the published runs that ship with it; `make docs` updates it.\n"
    yield (
        f"The table has {validation.rows} runs, of which {len(validation.held_out.prepared.runs)} can be predicted. Every family is scored"
        " with constants fitted without it, so no row informs its own prediction. error = predicted / measured - 1 of the step time.\n"
    )
    for line in _headline(validation):
        yield f"- {line}"
    yield ""
    yield "## By family\n"
    yield (
        "The headline counts dense pre-training with known recompute; groups of other rows have the reason in their name. *One efficiency*:"
        " one MFU for each device, the median of the other families. *Own level*: the family's own median MFU, so the level is given."
    )


def _rest(validation: Validation) -> Iterator[str]:
    """The sections after the table of families: worst rows, constants, devices, memory, skipped rows."""
    yield from _beaten(validation)
    yield "## Worst rows\n"
    for line in worst(validation.held_out, 12):
        yield f"- {line}"
    yield "\n## Reasons for large errors\n"
    for family, cause in causes().items():
        yield f"- {family}: {cause}"
    yield "\n## What is fitted\n"
    record = validation.record
    yield (
        f"{len(constants())} global constants, on {record['rows']} rows of {len(record['families'])} families; no constant per run,"
        " model or family. Everything else is measured on operators, cited or counted, with its source.\n"
    )
    yield from _constants(validation)
    yield "\n## Without each constant\n"
    yield "Held-out errors with one effect switched off and the other constants fitted again.\n"
    yield from _ablation(record)
    yield "\n## By device\n"
    yield from markdown_table(HEADER[:9], [row[:9] for row in group_rows(validation, "device")])
    yield "\n## By kind of band\n"
    yield from markdown_table(HEADER[:9], [row[:9] for row in group_rows(validation, "support")])
    if validation.memory is not None:
        yield "\n## Memory\n"
        for line in memory_lines(validation.memory):
            yield f"- {line.strip()}"
    yield "\n## Skipped rows\n"
    yield from markdown_table(("rows", "reason"), [(str(n), reason) for reason, n in skip_counts(validation.held_out.skipped).items()])


def causes() -> dict[str, str]:
    """Known reasons why a family is predicted worse than most."""
    return tomllib.loads((DATA / "causes.toml").read_text(encoding="utf-8"))


def _beaten(validation: Validation) -> Iterator[str]:
    """How often ironlaw is better than one efficiency for each device."""
    share = baseline_data(validation.held_out)["one efficiency a device"]["families_of_10_beaten"]
    if share is not None:
        yield f"For {share:.0%} of the families with ten rows or more, ironlaw is better than one efficiency for each device.\n"


def _constants(validation: Validation) -> Iterator[str]:
    """A table of the fitted constants with their ranges."""
    rows = []
    for c in constants():
        values = [v[c.name] for v in validation.fit.held_out.values()]
        spread = f"{min(values):.3g} to {max(values):.3g}"
        rows.append(
            (f"`{c.name}`", f"{validation.fit.values[c.name]:.3g}", f"{c.first:.3g}", spread, f"{c.low:g} to {c.high:g}", c.meaning)
        )
    yield from markdown_table(("constant", "value", "first value", "families left out", "bounds", "meaning"), rows)


def _ablation(record: dict[str, Any]) -> Iterator[str]:
    """A table of the errors without each constant."""
    names = ("family_median_abs_error", "pooled_median_abs_error", "p90_abs_error")
    rows = [("all effects", *(percent(record["headline"][n]) for n in names))]
    rows += [(f"without `{name}`", *(percent(figures[n]) for n in names)) for name, figures in record["ablation"].items()]
    yield from markdown_table(("", "median over families", "all rows", "p90"), rows)
