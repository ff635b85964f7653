"""Parameters, FLOPs and saved bytes of classes of transformers, built small, against the laws.

tests/data/transformers_classes.csv has the figures with the versions they were measured with; docs/parameter-counts.md shows them.
"""

import csv
import importlib.util

import pytest

import paths

pytest.importorskip("transformers", reason="transformers is not installed: make test-torch installs it")
pytestmark = pytest.mark.torch

spec = importlib.util.spec_from_file_location("transformers_classes", paths.ROOT / "tools" / "transformers_classes.py")
tool = importlib.util.module_from_spec(spec)
spec.loader.exec_module(tool)
with tool.OUT.open(encoding="utf-8", newline="") as opened:
    ROWS = {row["class"]: row for row in csv.DictReader(opened)}


@pytest.mark.parametrize("case", tool.CASES, ids=lambda case: case.name)
def test_a_class_has_the_parameters_that_the_laws_count(case):
    built, ours = tool.parameters(case)
    assert ours == built
    assert built == float(ROWS[case.name]["parameters"])


@pytest.mark.parametrize("case", [case for case in tool.CASES if case.computed], ids=lambda case: case.name)
def test_a_class_computes_the_flop_that_the_laws_count(case):
    assert tool.our_flop(case) == tool.counted_flop(case)


@pytest.mark.parametrize("case", [case for case in tool.CASES if case.saved], ids=lambda case: case.name)
def test_a_layer_keeps_the_bytes_that_the_laws_count_or_says_what_it_keeps_beside(case):
    kept, ours = tool.saved(case)
    assert kept == pytest.approx(float(ROWS[case.name]["saved"]), rel=0.01)
    if case.why:
        assert 0.5 * kept < ours < 0.95 * kept
    else:
        assert ours == pytest.approx(kept, rel=0.005)  # left out: the statistics of the norms


def test_the_table_has_every_class():
    assert list(ROWS) == [case.name for case in tool.CASES]
