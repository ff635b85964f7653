"""Write the results of a fit: constants and bands into the catalogue, and a record from which runs are scored again."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Sequence
from datetime import date
from pathlib import Path
from typing import Any, NamedTuple

from ironlaw.catalog import load
from ironlaw.catalog.load import SHIPPED
from ironlaw.estimate.answer.bands import PARTS
from ironlaw.estimate.evidence.published_runs import Evidence, write_evidence
from ironlaw.files import read_shipped, write_file
from ironlaw.validate import own_runs, widths
from ironlaw.validate.fit import COVERAGE, RECORD, Constant, Fit, ablations, constants, fitted_rows, held_out_times
from ironlaw.validate.plans import Pair, difference_spreads, pairs_of, slope, slope_note, told_apart_note
from ironlaw.validate.predict import Prepared
from ironlaw.validate.runs import RUNS
from ironlaw.validate.score import headline, score
from ironlaw.validate.support import write_support

SYSTEMS, BANDS = SHIPPED / "systems" / "default.toml", SHIPPED / "bands" / "default.toml"
_TITLE = "ironlaw validate fit on the published runs that ship, each family weighing the root of its rows"
_URL = "https://github.com/ironlaw/ironlaw/blob/main/docs/validation.md"


class LearnedBands(NamedTuple):
    """What bands are made of: parts of a half-width, the law of own runs, the evidence, and how good they are on publishers left out."""

    parts: dict[str, float]
    without: dict[str, dict[str, float]]  # parts learned without a publisher
    share: float
    reach: float
    evidence: Evidence
    figures: dict[str, Any]
    half_width: Any  # of every run, learned without its publisher
    rows: int
    families: int


def learn_bands(prepared: Prepared, generic: Prepared, fit: Fit) -> LearnedBands:
    """Learn bands from held-out errors of runs with their stack's record (``prepared``) and with the one of an unknown stack."""
    predicted, stranger = held_out_times(prepared, fit), held_out_times(generic, fit)
    evidence = widths.evidence_of(prepared, predicted)
    rows = widths.join(widths.rows_of(prepared, predicted, evidence), widths.rows_of(generic, stranger, evidence, generic=True))
    found, without = widths.learn(rows), widths.learn_without(rows)
    half_width = widths.half_widths(rows.multiple, rows.banded, rows.family, found, without)
    known = len(prepared.runs)
    pairs = [
        pair
        for runs, times, width in ((prepared, predicted, half_width[:known]), (generic, stranger, half_width[known:]))
        for pair in own_runs.pairs_of(runs, times, width)
    ]
    share, reach = own_runs.learn(pairs)
    half = len(pairs) // 2
    by_record = {"record": pairs[:half], "generic": pairs[half:]}
    figures = {
        "bands": widths.judge(rows, half_width, widths.groups_of(prepared, generic)),
        "own_runs": {record: own_runs.judge(of_it) for record, of_it in by_record.items()},
    }
    return LearnedBands(
        widths.named(found),
        {family: widths.named(value) for family, value in without.items()},
        share,
        reach,
        evidence,
        figures,
        half_width[:known],
        int(rows.banded.sum()),
        len(without),
    )


def write_fit(
    prepared: Prepared,
    generic: Prepared,
    fit: Fit,
    memory: dict[str, tuple[float, float, int, int]],
    systems: Path = SYSTEMS,
    record: Path = RECORD,
) -> None:
    """Write the constants into the systems record, and beside the runs a record of the fit, with and without each effect."""
    predicted = held_out_times(prepared, fit)
    rows = fitted_rows(prepared)
    learned = learn_bands(prepared, generic, fit)
    table = {
        "date": date.today().isoformat(),
        "runs_sha256": hashlib.sha256(read_shipped(RUNS).encode()).hexdigest(),
        "rows": int(rows.sum()),
        "families": list(dict.fromkeys(prepared.families[rows].tolist())),
        "constants": _rounded(fit.values),
        "held_out": {f: _rounded(v) for f, v in fit.held_out.items()},
        **band_figures(prepared, predicted, learned),
        "ablation": {n: headline(score(prepared, held_out_times(prepared, f), [])) for n, f in ablations(prepared, fit)},
    }
    write_file(record, (json.dumps(table, indent=1) + "\n").encode())
    text = read_shipped(systems)
    for c in constants():
        values = [v[c.name] for v in fit.held_out.values()]
        text = _replace_line(text, c, fit.values[c.name], min(values), max(values))
    write_file(systems, (_with_source(text, "fit", f"{_TITLE}; {int(rows.sum())} rows of {len(fit.held_out)} families")).encode())
    write_bands(learned, memory, pairs_of(prepared, predicted), pairs_of(prepared, predicted, ()))
    write_evidence(learned.evidence)
    write_support(prepared)


def band_figures(prepared: Prepared, predicted: Any, learned: LearnedBands) -> dict[str, Any]:
    """What the record of a fit says of bands."""
    return {"bands_held_out": learned.without, **learned.figures, "headline": headline(score(prepared, predicted, [], learned.half_width))}


def _rounded(values: Any) -> dict[str, float]:
    return {name: float(f"{value:.4g}") for name, value in values.items()}


def _replace_line(text: str, c: Constant, value: float, least: float, most: float) -> str:
    """The text with one constant's fitted value; its note has meaning, first value, and range with one family left out."""
    unit = " s" if c.name == "step_overhead" else ""
    note = f"{c.meaning}; first value {c.first:.3g} ({c.source}); {least:.3g} to {most:.3g} when a family is left out"
    line = f'{c.name} = {{ value = "{value:.4g}{unit}", source = "fit", note = "{note}" }}'
    return re.sub(rf"^{c.name} = .*$", lambda _: line, text, flags=re.MULTILINE)


def _with_source(text: str, key: str, title: str) -> str:
    """The text with one source block replaced, at its end; blocks of unused sources are removed."""
    blocks = re.findall(r"^\[sources\.([\w-]+)\]$", text, flags=re.MULTILINE)
    for name in blocks:
        if name == key or f'source = "{name}"' not in text:
            text = re.sub(rf"\n\[sources\.{name}\]\n(?:[^\[\n].*\n)*", "", text)
    return (
        text.rstrip("\n") + f'\n\n[sources.{key}]\ntitle = "{title}"\nurl = "{_URL}"\nread = {date.today().isoformat()}\ngrade = "fitted"\n'
    )


def write_bands(
    learned: LearnedBands,
    memory: dict[str, tuple[float, float, int, int]],
    pairs: Sequence[Pair],
    known: Sequence[Pair],
    path: Path = BANDS,
) -> None:
    """Write the half-widths of bands, with the rows behind each. ``known``: the pairs whose precision is stated, for the slope of gains."""
    shipped = load.record("bands", "default", ()).told_apart
    difference, note = difference_spreads(pairs), told_apart_note(pairs, shipped.value)
    lines = [
        'title = "Error bands from runs whose family was left out of the fit"\n',
        f'coverage = {{ value = "{COVERAGE}", source = "choice", note = "meant to hold for four runs in five of a family unseen" }}',
        f'told_apart = {{ value = "{shipped.text}", source = "pairs", note = "{note}" }}',
        f'gain_slope = {{ value = "{slope(known):.2f}", source = "gains", note = "{slope_note(known)}" }}',
        "\n[width]",
        *(
            f'"{name}" = {{ value = "{learned.parts[name]:.4f}", source = "held-out", note = "half-width in log, times: {meaning}'
            f'{f"; at least {widths.LEAST[name]}" if name in widths.LEAST else ""}" }}'
            for name, meaning in PARTS.items()
        ),
        "\n[level]",
        f'share = {{ value = "{learned.share:.2f}", source = "own-runs", note = "of the error of a run, that an equal run has too" }}',
        f'reach = {{ value = "{learned.reach:.2f}", source = "own-runs", note = "distance at which 1/e of it is left" }}',
        "\n[difference]",
        *(
            f'"{kind}" = {{ value = "{w:.3f}", source = "pairs", note = "half-width in log; {n} pairs of {f} families" }}'
            for kind, (w, n, f) in difference.items()
        ),
        "\n[memory]",
        *(
            f'"{group}" = {{ value = "{w:.3f}", source = "memory", note = "half-width in log; {n} rows of {f} families" }}'
            for group, (_, w, n, f) in memory.items()
        ),
        "\n[memory_centre]",
        *(f'"{group}" = {{ value = "{max(centre, 0.0):.3f}", source = "memory" }}' for group, (centre, *_) in memory.items()),
    ]
    sources = {
        "choice": ("A choice: bands of 80 %", "guess"),
        "held-out": (
            f"Errors of {learned.rows} predictions (ironlaw validate) without their publisher, of {learned.families} publishers: each run"
            " with its stack's record and with that of an unknown stack, publishers weighing the same",
            "fitted",
        ),
        "own-runs": ("Errors of a publisher's runs after a correction by one of them, publishers weighing the same", "fitted"),
        "pairs": (shipped.source.title, shipped.source.grade),  # from pairs of plans, not fitted
        "gains": ("ironlaw validate --plans: plans of one job, predicted without their family, by what was measured", "fitted"),
        "memory": (
            "Device and reserved memory of published runs over its prediction (ironlaw validate --memory), families weighing the same",
            "fitted",
        ),
    }
    for key, (title, grade) in sources.items():
        url = shipped.source.url if key == "pairs" else _URL
        lines.append(f'\n[sources.{key}]\ntitle = "{title}"\nurl = "{url}"\nread = {date.today().isoformat()}\ngrade = "{grade}"')
    write_file(path, ("\n".join(lines) + "\n").encode())
