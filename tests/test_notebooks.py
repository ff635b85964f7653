"""The notebooks of the examples run, and show what they give today."""

from __future__ import annotations

import importlib.util
import json

import pytest

import paths

NOTEBOOKS = sorted((paths.ROOT / "examples").glob("*.ipynb"))
_spec = importlib.util.spec_from_file_location("notebooks", paths.ROOT / "tools" / "notebooks.py")
notebooks = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(notebooks)


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda p: p.stem)
def test_a_notebook_shows_the_outputs_of_its_code(path):
    assert notebooks.current(path) == path.read_text(encoding="utf-8"), "stale: run python tools/notebooks.py"


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda p: p.stem)
def test_a_notebook_has_the_keys_of_its_format(path):
    found = json.loads(path.read_text(encoding="utf-8"))
    assert (found["nbformat"], found["nbformat_minor"]) == (4, 5) and len({cell["id"] for cell in found["cells"]}) == len(found["cells"])
    for cell in found["cells"]:
        assert (
            {"cell_type", "id", "metadata", "source"}
            <= set(cell)
            <= {"cell_type", "id", "metadata", "source", "outputs", "execution_count"}
        )


def test_outputs_are_what_is_printed_and_the_last_value():
    names = {}
    first = notebooks.outputs("x = 1\nprint('a')\nx + 1", names, 3)
    assert first[0] == {"name": "stdout", "output_type": "stream", "text": ["a\n"]}
    assert first[1]["data"] == {"text/plain": ["2"]} and first[1]["execution_count"] == 3
    assert notebooks.outputs("x = 2", names, 4) == []
    assert names["x"] == 2
