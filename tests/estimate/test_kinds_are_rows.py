"""Schedules, context methods, dispatchers and collectives are rows of one table each; no other module compares their names."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import ironlaw
from ironlaw.estimate import wires
from ironlaw.estimate.layer.context_methods import METHODS
from ironlaw.estimate.layer.dispatchers import DISPATCHERS
from ironlaw.estimate.pipeline.schedules import SCHEDULES
from ironlaw.question import defaults
from ironlaw.questions.roofline.options import COLLECTIVES

ROOT = Path(ironlaw.__file__).parent
FIELDS = {"schedule", "cp_method", "moe_dispatcher"}
NAMES = {*SCHEDULES, *METHODS, *DISPATCHERS}


@pytest.mark.parametrize(
    ("table", "named"),
    [
        (SCHEDULES, defaults.SCHEDULES),
        (METHODS, defaults.CP_METHODS),
        (DISPATCHERS, defaults.DISPATCHERS),
        (wires.COLLECTIVES, COLLECTIVES),
    ],
    ids=("schedules", "context methods", "dispatchers", "collectives"),
)
def test_options_name_the_rows_of_the_table(table, named):
    assert tuple(table) == named
    assert all(name == row.name for name, row in table.items())


def _words(node: ast.AST) -> set[str]:
    """Fields and variables that an expression reads, and texts in it."""
    nodes = list(ast.walk(node))
    texts = {n.value for n in nodes if isinstance(n, ast.Constant) and isinstance(n.value, str)}
    return texts | {n.attr for n in nodes if isinstance(n, ast.Attribute)} | {n.id for n in nodes if isinstance(n, ast.Name)}


def test_names_of_kinds_are_compared_nowhere():
    compared = [
        f"{path.relative_to(ROOT)}:{node.lineno}"
        for path in (*(ROOT / "estimate").rglob("*.py"), *(ROOT / "search").rglob("*.py"))
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Compare) and _words(node) & FIELDS and _words(node) & NAMES
    ]
    assert compared == []


def test_no_law_reads_a_label():
    """Code finds terms by key or takes named results: a label may be reworded without moving a number."""
    read = [
        f"{path.relative_to(ROOT)}:{node.lineno}"
        for path in (ROOT / "estimate").rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Attribute) and node.attr in ("startswith", "endswith") and ast.unparse(node.value).endswith(".name")
    ]
    assert read == []
