"""Terms in JSON: paths that can be asked for, totals that add up, kinds of the palette, formulas that give the value."""

from __future__ import annotations

import json
import sys
from importlib import import_module

import pytest

import ironlaw
import paths
from ironlaw.errors import UnknownNameError
from ironlaw.estimate.answer.as_data import origins_of, row_data, trees_of
from ironlaw.estimate.answer.term_data import law_anchor, number, term_data, walk_paths
from ironlaw.formulas import computed, condition, formula_text, parsed
from ironlaw.report.explanation import explained_data
from ironlaw.terms import BOUNDS, MEMORY_KINDS, plain
from verbs import example

ALONE = {"pp": 1, "vpp": 1, "micro_batch_size": 1, "recompute": "full"}
QUESTIONS = {
    "dense": {
        "model": "llama-3-70b", "gpus": 512, "global_batch_size": 512, "tokens": "15T", "tp": 4, "pp": 4, "vpp": 4, "micro_batch_size": 1,
        "zero": 1, "recompute": "none",
    },
    "mixture": {**ALONE, "model": "mixtral-8x7b", "gpus": 64, "tp": 2, "pp": 4, "ep": 8, "zero": 1, "recompute": "selective"},
    "offloaded": {**ALONE, "model": "llama-3-8b", "gpus": 8, "tp": 1, "zero": 3, "offload": "optimizer"},
    "adapters": {**ALONE, "model": "llama-3-8b", "gpus": 8, "tp": 1, "zero": 3, "lora_rank": 16, "frozen_weights": "nf4"},
    "reference": {**ALONE, "model": "llama-3-8b", "gpus": 16, "tp": 8, "zero": 1, "objective": "dpo"},
    "context": {**ALONE, "model": "llama-3-8b", "gpus": 32, "tp": 4, "cp": 8, "zero": 1, "seq_len": 131072, "recompute": "none"},
}  # fmt: skip


@pytest.fixture(scope="module", params=QUESTIONS)
def group(request):
    estimate = ironlaw.estimate(on="h100-sxm", **QUESTIONS[request.param])
    return estimate.place_of(0)


def nodes(data):
    yield data
    for part in data["parts"]:
        yield from nodes(part)


def test_paths_name_one_term_each(group):
    found = [path for tree in trees_of(group[0]) for _, path in walk_paths(tree)]
    assert len(found) == len(set(found))


def test_totals_and_kinds_add_up(group):
    """In a tree of sums the totals of parts add up to that of the node, and the kinds of a node to its total."""
    for tree in (group[0].step.tree, group[0].memory.tree):
        data = term_data(tree, group[1])
        assert data["total"] == data["value"]
        for node in nodes(data):
            if node["parts"]:
                assert node["total"] == pytest.approx(sum(part["total"] for part in node["parts"]), rel=1e-12, abs=1e-15 * data["total"])
            if "kinds" in node:
                assert sum(node["kinds"].values()) == pytest.approx(node["total"], rel=1e-12) and node["kind"] is None
        assert sum(data["kinds"].values()) == pytest.approx(data["total"], rel=1e-12)


def test_kinds_are_those_of_the_palette_and_no_byte_is_without(group):
    of_time, of_memory = (list(nodes(term_data(tree, group[1]))) for tree in (group[0].step.tree, group[0].memory.tree))
    assert all(node.get("kind") in (*BOUNDS, None) for node in of_time)
    assert all(node.get("kind") in (*MEMORY_KINDS, None) for node in of_memory)
    assert all(node.get("kind") for node in (*of_time, *of_memory) if not node["parts"] and node["total"])
    if group[0].memory.hosts:
        assert all(node.get("kind") in MEMORY_KINDS for node in nodes(term_data(group[0].memory.host_tree, group[1])) if not node["parts"])


def test_the_kinds_of_a_step_are_the_shares_of_its_roofs(group):
    kinds = term_data(group[0].step.tree, group[1])["kinds"]
    step = number(group[0].step.tree.value, group[1])
    for name, share in group[0].shares.items():
        assert kinds.get(name, 0.0) / step == pytest.approx(number(share, group[1]), abs=1e-12)


def test_a_formula_gives_the_value_of_its_term(group):
    """Of a law whose formula is in the grammar and names its inputs, the formula as it is shown gives the value."""
    checked, at = 0, group[1]
    for tree in trees_of(group[0]):
        for node in tree.walk():
            formula = parsed(formula_text(node.law)) if node.law else None
            values = {name: number(item, at) for name, item in node.inputs.items() if not isinstance(plain(item), str)}
            if formula is None or number(node.value, at) is None or condition(node.law):  # prose completes the formula
                continue
            try:
                value = computed(formula, values, node.law)
            except (KeyError, TypeError, ZeroDivisionError):  # a letter or a function that the docstring explains in prose
                continue
            assert value * number(node.times, at) == pytest.approx(number(node.value, at), rel=1e-9), formula_text(node.law)
            checked += 1
    assert checked > 40


def test_the_branch_that_won_is_the_kind(group):
    """The branch of a product with HBM traffic on one side and arithmetic on the other is the roof that it is booked on."""
    for node in nodes(term_data(group[0].step.tree, group[1])):
        if node["law"] == "ironlaw.law.kernels.kernel_time":
            assert {"compute": "flop", "hbm": "traffic"}[node["kind"]] in node["branch"]


def test_explained_inputs_have_unit_and_origin(group):
    found, origins = set(), origins_of(group[0])
    everywhere = {path for tree in trees_of(group[0]) for _, path in walk_paths(tree)}
    for tree in trees_of(group[0]):
        for node in nodes(term_data(tree, group[1], True, origins)):
            for item in node.get("inputs", {}).values():
                found.add(item["origin"])
                assert "unit" in item and ("from" in item) == (item["origin"] in ("term", "plan"))
                assert item["origin"] != "term" or item["from"] in everywhere
    assert {"record", "computed"} <= found


@pytest.mark.parametrize(
    "path", ["step", "step/micro-batches/layers/forward/flash attention", "device/reserved/allocated/weights", "power"]
)
def test_a_path_gives_one_term(ask, path):
    words = ["estimate", "llama-3-8b", "--on", "h100-sxm", "--gpus", "8", "--tp", "2", "--pp", "1", "--tokens", "1T"]
    whole = json.loads(ask(*words, "--json")[1])
    data = json.loads(ask(*words, "--explain", path, "--json")[1])
    (node,) = data["explained"]
    assert node["path"] == path and "step" not in data and {"asked", "sources"} <= data.keys()
    assert {leaf["law"] for leaf in nodes(node)} - {None} == data["laws"].keys()
    trees = {tree["path"]: tree for tree in (whole["step"]["tree"], whole["memory"]["tree"])}
    if path.partition("/")[0] in trees:
        same = next(other for other in nodes(trees[path.partition("/")[0]]) if other["path"] == path)
        assert (same["value"], same["total"]) == (node["value"], node["total"])


def test_every_path_resolves():
    estimate = ironlaw.estimate(on="h100-sxm", **QUESTIONS["dense"])
    data = row_data(*estimate.place_of(0))
    every = [node for tree in (data["step"]["tree"], data["memory"]["tree"]) for node in nodes(tree)]
    for node in every[::8]:
        (found,) = explained_data(estimate, node["path"])["explained"]
        assert (found["path"], found["total"]) == (node["path"], node["total"])
    with pytest.raises(UnknownNameError):
        explained_data(estimate, "step/no such term")


def test_a_path_of_another_verb_gives_one_term(ask):
    words = [word for word in example("sites") if word != "--json"]
    terms = json.loads(ask(*words, "--json")[1])["terms"]
    node = next(part for tree in terms.values() for part in nodes(tree) if "/" in part["path"])
    data = json.loads(ask(*words, "--explain", node["path"], "--json")[1])
    assert [found["path"] for found in data["explained"]] == [node["path"]] and data["explained"][0]["total"] == node["total"]


def test_laws_are_described_where_they_say():
    sys.path.insert(0, str(paths.ROOT / "tests"))
    headings = import_module("test_docs").anchors(paths.ROOT / "docs" / "reference" / "laws.md")
    from ironlaw.law import kernels, overlap

    assert {law_anchor(kernels.kernel_time), law_anchor(overlap.hidden)} <= headings
