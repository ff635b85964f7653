"""The page of the plans that are chosen from 8 to 16,384 accelerators: it is what the tool says, and no fall is unexplained."""

from __future__ import annotations

import importlib.util
import re
from itertools import pairwise
from typing import Any

import pytest

import paths

PAGE = paths.ROOT / "docs" / "scaling-of-defaults.md"
spec = importlib.util.spec_from_file_location("scaling_of_defaults", paths.ROOT / "tools" / "scaling_of_defaults.py")
maker = importlib.util.module_from_spec(spec)
spec.loader.exec_module(maker)

ASKED = (24, 96, 200, 480, 768, 1000, 1920, 2000, 3072, 5000)  # awkward counts that must be among the 40


def cells() -> dict[Any, str]:
    """The cells of the page, as text."""
    found, model, kind, made = {}, "", "", []
    by_device = {title: on for on, title in maker.DEVICES.items()}
    by_title = {maker.title_of(name): name for name in maker.MODELS}
    for line in PAGE.read_text(encoding="utf-8").splitlines():
        if line.startswith("## "):
            model = by_title.get(line[3:], "")  # no model at the awkward numbers
        elif line.startswith("### "):
            kind = maker.EQUAL if "equal work" in line else maker.FIXED
        elif model and line.startswith("| accelerators |"):
            made = [by_device[text.strip()] for text in line.strip("|").split("|")[1:]]
        elif model and re.match(r"\| [\d,]+ \|", line):
            count, *row = (text.strip() for text in line.strip("|").split("|"))
            found |= {(model, on, int(count.replace(",", "")), kind): text for on, text in zip(made, row, strict=True)}
    return found


@pytest.fixture(scope="module")
def page() -> dict[Any, str]:
    return cells()


def mfu(text: str) -> float | None:
    return None if text == "-" else float(text.split(maxsplit=1)[0])


def shown(row: dict[str, Any]) -> str:
    return f"{100.0 * row['mfu']:.1f}" if "mfu" in row else "-"


def test_there_are_40_counts_from_8_to_16384_among_them_awkward_ones():
    assert len(maker.COUNTS) == len(set(maker.COUNTS)) == 40
    assert (min(maker.COUNTS), max(maker.COUNTS)) == (8, 16384)
    assert set(ASKED) <= set(maker.COUNTS)


def test_every_cell_of_a_listed_column_is_there_and_the_page_names_the_missing_ones(page):
    columns = {key[:2] for key in page}
    assert ("llama-3-8b", "h100-sxm") in columns
    assert set(page) == {key for key in maker.keys() if key[:2] in columns}
    if missing := maker.missing_columns(page):
        assert missing in PAGE.read_text(encoding="utf-8")


def test_every_fall_has_letters_and_none_is_unaccounted_for(page):
    for model, on, kind in {(key[0], key[1], key[3]) for key in page}:
        row = [page[model, on, count, kind] for count in maker.COUNTS if page[model, on, count, kind] != "-"]
        for before, after in pairwise(row):
            letters = after.split()[1] if " " in after else ""
            assert set(letters) <= set(maker.WORDS), after
            if mfu(after) < mfu(before):
                assert letters, f"{model} on {on}: {before} to {after}"


def test_neighbours_at_equal_work_differ_little_or_are_explained(page):
    text = PAGE.read_text(encoding="utf-8")
    listed = text[text.index("## Neighbours") :]
    for model, on in {key[:2] for key in page}:
        has = [count for count in maker.COUNTS if page[model, on, count, maker.EQUAL] != "-"]
        for before, after in pairwise(has):
            low, high = sorted(mfu(page[model, on, count, maker.EQUAL]) for count in (before, after))
            if 1.0 - low / high > maker.LARGE + 0.01:  # the page shows tenths of a per cent
                line = f"- {maker.title_of(model)} on {maker.DEVICES[on]}, {before:,} to {after:,}:"
                assert line in listed, line


def test_the_causes_of_a_fall_are_what_grew_most():
    before = {"mfu": 0.5, "losses": {"k": 0.3, "p": 0.1, "g": 0.1}}
    after = {"mfu": 0.4, "losses": {"k": 0.24, "p": 0.28, "g": 0.08}}
    named = maker.causes(before, after)  # 1/MFU grows by 0.5; the bubble from 0.2 to 0.7 of the peak's time
    assert [letter for letter, _ in named] == ["p"]
    assert named[0][1] == pytest.approx(1.0)
    assert maker.fall(before, after) == pytest.approx(0.2)


SAMPLE = (
    ("llama-3-8b", "h100-sxm", 24, "fixed"), ("llama-3-8b", "h100-sxm", 1000, "fixed"), ("llama-3-8b", "h100-sxm", 2000, "equal"),
    ("llama-3-8b", "h100-sxm", 6144, "fixed"),
)  # fmt: skip


@pytest.mark.parametrize("key", SAMPLE, ids=str)
def test_a_cell_of_the_page_is_what_an_estimate_says(key, page):
    row = maker.cell(*key)
    assert shown(row) == page[key].split()[0]
    assert row["mfu"] + sum(row["losses"].values()) == pytest.approx(1.0, abs=1e-9)


@pytest.mark.slow
@pytest.mark.parametrize(("model", "on"), [("llama-3-8b", "h100-sxm")])
def test_a_column_of_the_page_is_made_again(model, on, page):
    rows = {(model, on, count, kind): maker.cell(model, on, count, kind) for count in maker.COUNTS for kind in (maker.EQUAL, maker.FIXED)}
    assert {key: shown(row) for key, row in rows.items()} == {key: page[key].split()[0] for key in rows}
    for kind in (maker.EQUAL, maker.FIXED):
        for before, after in maker.neighbours(rows, model, on, kind):
            if maker.fall(before, after) > 0.0:
                named = maker.causes(before, after)
                assert maker.is_accounted(named)
                text = page[model, on, after["gpus"], kind]
                assert (text.split()[1] if " " in text else "") == maker.letters(named)


def test_there_are_60_awkward_counts_and_the_ones_that_were_holes_are_among_them():
    assert len(maker.AWKWARD) == len(set(maker.AWKWARD)) >= 60
    assert {1300, 1500, 2000, 2003, 3000, 5000, 6000, 8191, 12000} <= set(maker.AWKWARD)
    assert sorted(maker.AWKWARD) == list(maker.AWKWARD)


def test_a_fall_is_found_and_one_that_is_named_is_not():
    rows = [
        {"mfu": 0.5, "remedies": []},
        {"mfu": 0.44, "remedies": []},
        {"mfu": 0.46, "remedies": []},
        {"mfu": 0.2, "remedies": ["a line"]},
    ]
    assert maker.unnamed_falls(rows) == [rows[1]]


def test_no_awkward_count_falls_by_a_tenth_without_a_line_that_says_what_to_do():
    rows = [maker.cell("llama-3-70b", "h100-sxm", gpus, maker.AWKWARD_KIND) for gpus in (1280, 1300, 1400, 1500, 1536, 2000, 2003, 2048)]
    assert maker.unnamed_falls(rows) == []
