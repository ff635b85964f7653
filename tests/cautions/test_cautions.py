"""Warnings are records: every code has a row, a place in the docs and values that its sentence prints."""

from __future__ import annotations

import ast
import copy
import json
import pickle
import re
from pathlib import Path

import pytest

import ironlaw
import paths
from ironlaw.cautions.record import Caution, Row, as_record, only, read_record, sentences, without
from ironlaw.cautions.table import WARNINGS, caution
from ironlaw.question.options import OPTIONS

SOURCE = Path(ironlaw.__file__).parent
PAGE = (paths.ROOT / "docs" / "warnings.md").read_text(encoding="utf-8")


def calls() -> dict[str, list[ast.Call]]:
    """Every call of ``caution`` with a code that is written down."""
    found: dict[str, list[ast.Call]] = {}
    for path in SOURCE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "caution" and isinstance(node.args[0], ast.Constant):
                found.setdefault(node.args[0].value, []).append(node)
    return found


CALLS = calls()


def test_codes_are_words_with_hyphens_and_each_once_in_the_docs():
    for code in WARNINGS:
        assert re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", code), code
        assert PAGE.count(f"\n### {code}\n") == 1, f"{code}: write docs/warnings.md again: python tools/docs.py"


def test_every_code_that_is_raised_has_a_row_and_every_row_is_raised():
    computed = {"loss-extrapolated", "tokens-extrapolated"}  # by unit
    assert set(CALLS) | computed == set(WARNINGS)


@pytest.mark.parametrize("code", CALLS)
def test_a_call_gives_every_value_of_its_sentence(code):
    named = set(re.findall(r"\{(\w+)", WARNINGS[code].sentence + WARNINGS[code].action)) - {"action"}
    for call in CALLS[code]:
        given = {word.arg for word in call.keywords}
        assert named <= given or None in given, f"{code} lacks {sorted(named - given)}"


def test_a_warning_is_its_sentence_and_carries_what_it_was_made_of():
    one = caution("may-not-fit", used=0.98, likely=0.6, margin=0.035, certainty=0.9)
    assert one == "the plan uses 98.0% of device memory and is 60% likely to fit: a plan that leaves 3.5% free is 90% likely to (" + (
        "--margin 3.5% makes a plan that leaves less an error)"
    )
    assert (one.code, one.option, one.values["likely"]) == ("may-not-fit", "margin", 0.6)
    assert one.option in OPTIONS and one.action.startswith("--margin")
    for twin in (copy.deepcopy(one), pickle.loads(pickle.dumps(one)), read_record(json.loads(json.dumps(as_record(one))))):
        assert (twin, twin.code, twin.option, dict(twin.values), twin.action) == (one, one.code, one.option, dict(one.values), one.action)
    with pytest.raises(AttributeError):
        one.code = "other"


def test_saved_sentences_and_records_read_alike():
    records = [as_record(caution("left-out", item="a")), "left out: a", as_record("left out: b")]
    assert sentences(records) == ["left out: a", "left out: b"]
    assert read_record("left out: a").code == "other"


def test_warnings_are_told_apart_by_code():
    both = [caution("left-out", item="a"), caution("independent-failures")]
    assert only(both, "left-out") == both[:1] and without(both, "left-out") == both[1:]
    told = both[0].within("job 1")
    assert (told, told.code, told.values["where"]) == ("job 1: left out: a", "left-out", "job 1")


def test_values_are_shown_in_units_and_lists_joined():
    row = Row("{time:@s} of {size:@B}, {names:and}; {more:list}")
    assert Caution.of(row, "x", time=0.5, size=2.0**30, names=["a", "b"], more=["c", "d"]) == "500 ms of 1 GiB, a and b; c, d"


def test_no_code_reads_the_words_of_a_warning():
    """A test of text for words of a sentence breaks when the sentence is worded anew."""
    found = []
    for path in SOURCE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and getattr(node.func, "attr", "") in ("startswith", "endswith", "removeprefix", "partition"):
                subject = ast.unparse(node.func.value)
            elif isinstance(node, ast.Compare) and isinstance(node.ops[0], (ast.In, ast.NotIn)) and isinstance(node.left, ast.Constant):
                subject = ast.unparse(node.comparators[0])
            else:
                continue
            if re.search(r"(warning|caution|headline)s?\b|why_not\b|\bverdict\b", subject):
                found.append(f"{path.relative_to(SOURCE)}: {ast.unparse(node)}")
    assert found == []
