"""The page of a validation, for the terminal and as ``docs/validation.md``."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator, Mapping
from typing import Any

from ironlaw.files import read_shipped
from ironlaw.question.defaults import CERTAINTY
from ironlaw.report.columns import percent, set_rows
from ironlaw.report.terminal import markdown_table
from ironlaw.validate.fit import constants
from ironlaw.validate.generic import by_family
from ironlaw.validate.others import shipped
from ironlaw.validate.runs import DATA
from ironlaw.validate.score import Scored, Summary, baseline_data, deciles, headline, mixtures, skip_counts
from ironlaw.validate.session import CALCULON, Validation, exact_points

_WORST = 8


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
    lines += set_rows([HEADER, *group_rows(validation, by)])
    lines += ["", "worst of the headline:", *(f"  {line}" for line in worst(validation.held_out))]
    if validation.memory is not None:
        lines += ["", *memory_lines(validation.memory)]
    counts = skip_counts(validation.held_out.skipped)
    if counts:
        lines += ["", "skipped:", *(f"  {n:>4}  {reason}" for reason, n in counts.items())]
    return "\n".join(lines)


def shipped_text(found: dict[str, Any]) -> str:
    """The validation that ships, as a line on all runs and one for each family."""
    head = found["headline"]
    lines = [
        f"{found['rows']} runs, {found['scored']} scored with calibration {found['calibration_version']}, each without its family",
        f"headline: median error {percent(head['family_median_abs_error'])} over families, 90 % of runs within"
        f" {percent(head['p90_abs_error'])}, bias {percent(head['bias'], signed=True)}",
        "",
    ]
    table = [("group", "n", "median", "p90", "worst", "bias")]
    for group in found["groups"]:
        errors = (percent(group["median_abs_error"]), percent(group["p90_abs_error"]))
        table.append((group["key"], str(group["n"]), *errors, *(percent(group[name], signed=True) for name in ("worst", "bias"))))
    return "\n".join([*lines, *set_rows(table)])


def generic_text(own: Scored, generic: Scored) -> str:
    """Median error and bias with the runs' own records and with the generic one, for the terminal."""
    rows = [("family", "rows", "other record", "own median", "generic", "own bias", "generic")]
    for group in by_family(own, generic):
        name = group["family"] + ("" if group["apart"] == "headline" else f", {group['apart']}")
        errors = [percent(group[which]["median_abs_error"]) for which in ("own", "generic")]
        biases = [percent(group[which]["bias"], signed=True) for which in ("own", "generic")]
        rows.append((name, str(group["n"]), str(group["rows_changed"]), *errors, *biases))
    lines = ["with the generic record of a stack that is not in the catalogue (fsdp or megatron by its plan, or the device's usual one):"]
    lines += set_rows(rows)
    mine, theirs = (headline(scored)["family_median_abs_error"] for scored in (own, generic))
    if mine is not None and theirs is not None:
        lines.append(f"headline, median over families: {percent(mine)} with their own records, {percent(theirs)} with the generic one")
    return "\n".join(lines)


def others_text(compared: Mapping[str, Any]) -> str:
    """Predictions of another tool beside ours, for the terminal: a line for every group."""
    header = ("group", "n", "their median", "ours", "one efficiency", "their p90", "ours", "their bias", "ours", "their bands", "ours")
    groups = [*compared["groups"], *([compared["all"]] if compared["all"] else [])]
    lines = [f"{compared['rows']} predictions, {compared['scored']} of rows that are scored", *set_rows([header, *map(_beside, groups)])]
    lines += [f"not scored: line {row['line']} ({row['id']}): {row['reason']}" for row in compared["not_scored"]]
    return "\n".join(lines)


def _beside(row: Mapping[str, Any]) -> tuple[str, ...]:
    """One group of another tool's predictions as cells."""
    theirs, ours, base = row["theirs"], row["ours"], row["one_efficiency"]
    return (
        row["group"],
        str(row["n"]),
        percent(theirs["median_abs_error"]),
        percent(ours["median_abs_error"]),
        percent(base["median_abs_error"] if base else None),
        percent(theirs["p90_abs_error"]),
        percent(ours["p90_abs_error"]),
        percent(theirs["bias"], signed=True),
        percent(ours["bias"], signed=True),
        percent(theirs["band_coverage"], digits=0),
        percent(ours["band_coverage"], digits=0),
    )


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
    yield from _generic(validation)
    yield from _bands(record)
    yield from _own_runs(record)
    yield from _other_tools(validation)
    yield "## Predicted over measured\n"
    yield "Quantiles of predicted / measured step time, each family with constants fitted without it: 1 is right, below 1 is too fast.\n"
    names = ("least", *(f"{k}0 %" for k in range(1, 10)), "most")
    rows = [(d["group"], str(d["n"]), *(f"{q:.2f}" for q in d["ratio"])) for d in deciles(validation.held_out)]
    yield from markdown_table(("group", "n", *names), rows)
    yield "\n## By stack\n"
    yield from markdown_table(HEADER[:9], [row[:9] for row in group_rows(validation, "stack")])
    yield "\n## By device\n"
    yield from markdown_table(HEADER[:9], [row[:9] for row in group_rows(validation, "device")])
    yield "\n## By kind of run\n"
    yield from markdown_table(HEADER[:9], [row[:9] for row in group_rows(validation, "support")])
    if validation.memory is not None:
        yield "\n## Memory\n"
        for line in memory_lines(validation.memory):
            yield f"- {line.strip()}"
    yield "\n## Skipped rows\n"
    yield from markdown_table(("rows", "reason"), [(str(n), reason) for reason, n in skip_counts(validation.held_out.skipped).items()])


def _generic(validation: Validation) -> Iterator[str]:
    """Each family with its stack's record and with the generic one, held out, and in sample."""
    if validation.generic is None:
        return
    yield "\n## With the record of an unknown stack\n"
    yield (
        "Every run once with its stack's record and once with the record that a stack outside the catalogue gets; constants are fitted"
        " without the family. *Other record*: rows for which the two differ.\n"
    )
    rows = []
    for group in by_family(validation.held_out, validation.generic):
        name = group["family"] + ("" if group["apart"] == "headline" else f", {group['apart']}")
        figures = [percent(group[which][figure]) for figure in ("median_abs_error", "p90_abs_error") for which in ("own", "generic")]
        rows.append((name, str(group["n"]), str(group["rows_changed"]), *figures))
    yield from markdown_table(("family", "rows", "other record", "own median", "generic", "own p90", "generic"), rows)


def _bands(record: dict[str, Any]) -> Iterator[str]:
    """How often bands contain a publisher's runs, learned without it, with its stack's record and with the generic one."""
    found = record.get("bands")
    if not found:
        return
    yield "\n## Error bands\n"
    yield (
        "The half-width of a band is a sum of parts for what takes a question away from the published runs, learned with whole publishers"
        " and whole stack records left out. *Of runs* and *of publishers*: share of runs inside, pooled and with publishers weighing the"
        " same (meant: 80 %). *Score*: width plus a penalty for runs outside, in log; it should be below that of one width for every run.\n"
    )
    rows = [
        (
            g["group"],
            str(g["n"]),
            str(g["families"]),
            f"{g['coverage']:.0%}",
            f"{g['family_coverage']:.0%}",
            f"{g['median_half_width']:.2f}",
            f"{g['interval_score']:.2f}",
            f"{g['constant_interval_score']:.2f}",
        )
        for g in found["groups"]
    ]
    yield from markdown_table(("group", "n", "families", "of runs", "of publishers", "half-width", "score", "of one width"), rows)
    publishers = found["spearman_publishers"]
    ranked = "-" if publishers is None else f"{publishers:.2f}{'' if publishers > RANKED else ', not reached'}"
    yield (
        f"\nOver publishers left out the width ranks with the error by {ranked} (Spearman; aimed at: above {RANKED}); over single runs,"
        f" publishers weighing the same, by {found['spearman_runs']:.2f}.\n"
    )
    worse = [g["group"] for g in found["groups"] if g["interval_score"] > g["constant_interval_score"]]
    if worse:
        yield f"One width for every run would have the better score in: {'; '.join(worse)}.\n"
    missed = [g["group"] for g in found["groups"] if not AIM[0] <= g["coverage"] <= AIM[1]]
    if missed:
        yield f"Outside the {AIM[0]:.0%} to {AIM[1]:.0%} that is aimed at: {'; '.join(missed)}.\n"


RANKED = 0.3  # rank correlation of width and error that is aimed at
AIM = (0.75, 0.85)  # share of runs inside a band of 80 %


def _own_runs(record: dict[str, Any]) -> Iterator[str]:
    """What one run of a publisher says of its others."""
    found = record.get("own_runs")
    if not found:
        return
    yield "## One run of your own\n"
    yield (
        "One run of a publisher corrects each of its others (`ironlaw validate --mine`), by a law learned without this publisher. *Like*"
        " runs have the same kind of model, device, format and stack, and sizes within a factor of 2.3; *all* are all runs of a publisher."
        " Errors are medians of each publisher, then the median and the mean over publishers.\n"
    )
    rows = []
    for which, name in (("record", "its record"), ("generic", "generic record")):
        for group in ("like", "all"):
            f = found.get(which, {}).get(group)
            if f:
                medians = (percent(f["before"]), percent(f["after"]), percent(f["mean_before"]), percent(f["mean_after"]))
                rows.append((f"{group}, {name}", str(f["families"]), *medians, f"{f['coverage']:.0%}", f"{f['narrower']:.2f}"))
    header = ("runs", "publishers", "median before", "after", "mean before", "after", "in the corrected band", "width, times")
    yield from markdown_table(header, rows)
    yield ""


def _other_tools(validation: Validation) -> Iterator[str]:
    """Predictions of other tools beside ours, on the same rows."""
    found = shipped(validation.held_out)
    points = exact_points(validation.held_out)
    if not found and points is None:
        return
    yield "## Other tools on the same rows\n"
    yield (
        "Median |error| and its 90 % quantile, theirs and ours; *one efficiency* is one MFU for each device. Score any tool with"
        " `ironlaw validate --predictions FILE.csv` (columns id, step_time_s).\n"
    )
    rows = []
    for tool in found:
        for g in (*tool["groups"], tool["all"]):
            base = g["one_efficiency"]["median_abs_error"] if g["one_efficiency"] else None
            figures = [percent(g[who][name]) for name in ("median_abs_error", "p90_abs_error") for who in ("theirs", "ours")]
            rows.append((f"{tool['tool']}, {g['group']}", str(g["n"]), *figures, percent(base)))
    if points is not None:
        rows.append(("Calculon's eight A100 points (means)", "8", percent(CALCULON), percent(points), "-", "-", "-"))
    yield from markdown_table(("tool and rows", "n", "theirs", "ours", "their p90", "ours", "one efficiency"), rows)
    yield ""
    for tool in found:
        yield f"- {tool['tool']}: [{tool['title']}]({tool['url']})"
    yield ""


def causes() -> dict[str, str]:
    """Known reasons why a family is predicted worse than most."""
    return tomllib.loads(read_shipped(DATA / "causes.toml"))


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
