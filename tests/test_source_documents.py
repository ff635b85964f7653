"""The table of the source documents has every item once, and the commands and laws that its rows name exist."""

from __future__ import annotations

import contextlib
import functools
import importlib
import io
import json
import re
import shlex
import tomllib

import pytest

import paths
from ironlaw.cli.main import main

ROOT = paths.ROOT
PAGE = ROOT / "docs" / "documents" / "every-item.md"
ROWS = re.findall(r"^\| ((?:[FE]\d{3}[.-]|X)\d+) \| (.+?) \| (.+) \|$", PAGE.read_text(encoding="utf-8"), flags=re.MULTILINE)
ITEMS = json.loads((paths.DATA / "source_items.json").read_text(encoding="utf-8"))
CHECKS = [
    check
    for path in sorted((paths.DATA / "items").glob("*.toml"))
    for check in tomllib.loads(path.read_text(encoding="utf-8")).get("check", [])
]
SPANS = sorted({span for _, _, how in ROWS for span in re.findall(r"`([^`]+)`", how)})


@functools.cache
def printed_by(command):
    """Standard output of a command; several items read the same one. Recorded traces are named from the root."""
    out = io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.chdir(ROOT):
        status = main(shlex.split(command)[1:])
    return status, out.getvalue()


def test_the_table_has_every_item_once():
    assert [item for item, _, _ in ROWS] == list(dict.fromkeys(item for item, _, _ in ROWS))
    assert {item for item, _, _ in ROWS} == set(ITEMS)


def test_the_list_of_items_is_complete():
    """The items of each document, numbered without gaps."""
    last = {"F000.": 21, "F001.": 25, "F002.": 13, "F003.": 43, "F004.": 12, "X": 5}
    last |= {"E000-": 8, "E001-": 11, "E002-": 5, "E003-": 34, "E004-": 13}
    assert set(ITEMS) == {f"{name}{number}" for name, count in last.items() for number in range(1, count + 1)}


@pytest.mark.parametrize("command", [span for span in SPANS if span.startswith("ironlaw ")])
def test_a_command_of_the_table_runs(command):
    status, out = printed_by(command)
    assert status in (0, 1) and out.strip()


@pytest.mark.parametrize("name", [span for span in SPANS if span.startswith("law.")])
def test_a_law_of_the_table_exists(name):
    module, _, function = name.rpartition(".")
    assert callable(getattr(importlib.import_module(f"ironlaw.{module}"), function))


def test_every_item_has_an_answer():
    for item, _, how in ROWS:
        assert not re.search(r"[Nn]ot built", how), item
        assert len(how) > 10, item


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: f"{check['item']}: {check['command'][:60]}")
def test_the_output_of_an_item_has_its_figures(check):
    """Figures of the documents and of their errata, read from what the command prints."""
    assert check["item"] in ITEMS and check["from"].strip()
    status, out = printed_by(check["command"])
    assert status in (0, 1)
    for pattern in check.get("shows", []):
        assert re.search(pattern, out, flags=re.MULTILINE), f"{pattern!r} is not in\n{out}"
    for figure in check.get("figures", []):
        found = re.search(figure["find"], out, flags=re.MULTILINE)
        assert found, f"{figure['find']!r} is not in\n{out}"
        assert float(found[1].replace(",", "")) == pytest.approx(figure["value"], rel=figure["within"]), found[0]
    assert check.get("shows") or check.get("figures"), "a check without an expectation cannot fail"


def test_every_item_has_a_check_of_what_its_command_prints():
    """All 119 items: each has figures or words that its command must print."""
    asked = {item for item in ITEMS if not item.startswith("E")}
    assert len(asked) == 119
    assert asked <= {check["item"] for check in CHECKS}
