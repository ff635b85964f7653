"""The table of the source documents has every item once, and the commands and laws that its rows name exist."""

from __future__ import annotations

import importlib
import json
import re
import shlex

import pytest

import paths
from ironlaw.cli.main import main

ROOT = paths.ROOT
PAGE = ROOT / "docs" / "documents" / "every-item.md"
ROWS = re.findall(r"^\| ((?:[FE]\d{3}[.-]|X)\d+) \| (.+?) \| (.+) \|$", PAGE.read_text(encoding="utf-8"), flags=re.MULTILINE)
ITEMS = json.loads((paths.DATA / "source_items.json").read_text(encoding="utf-8"))
SPANS = sorted({span for _, _, how in ROWS for span in re.findall(r"`([^`]+)`", how)})


def test_the_table_has_every_item_once():
    assert [item for item, _, _ in ROWS] == list(dict.fromkeys(item for item, _, _ in ROWS))
    assert {item for item, _, _ in ROWS} == set(ITEMS)


def test_the_list_of_items_is_complete():
    """The items of each document, numbered without gaps."""
    last = {"F000.": 21, "F001.": 25, "F002.": 13, "F003.": 43, "F004.": 12, "X": 5}
    last |= {"E000-": 8, "E001-": 11, "E002-": 5, "E003-": 34, "E004-": 13}
    assert set(ITEMS) == {f"{name}{number}" for name, count in last.items() for number in range(1, count + 1)}


@pytest.mark.parametrize("command", [span for span in SPANS if span.startswith("ironlaw ")])
def test_a_command_of_the_table_runs(command, capsys, monkeypatch):
    monkeypatch.chdir(ROOT)  # recorded traces are named from there
    assert main(shlex.split(command)[1:]) in (0, 1), capsys.readouterr().err
    assert capsys.readouterr().out.strip()


@pytest.mark.parametrize("name", [span for span in SPANS if span.startswith("law.")])
def test_a_law_of_the_table_exists(name):
    module, _, function = name.rpartition(".")
    assert callable(getattr(importlib.import_module(f"ironlaw.{module}"), function))


def test_every_item_has_an_answer():
    for item, _, how in ROWS:
        assert not re.search(r"[Nn]ot built", how), item
        assert len(how) > 10, item
