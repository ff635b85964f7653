"""Schedules, context methods, dispatchers, collectives and mixers are rows of one table each; no other module compares their names."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import ironlaw
from ironlaw.estimate import wires
from ironlaw.estimate.layer.context_methods import METHODS
from ironlaw.estimate.layer.dispatchers import DISPATCHERS
from ironlaw.estimate.layer.mixer import Mixer
from ironlaw.estimate.layer.mixers import MIXERS
from ironlaw.estimate.pipeline.schedules import SCHEDULES
from ironlaw.question import defaults
from ironlaw.questions.roofline.options import COLLECTIVES

ROOT = Path(ironlaw.__file__).parent
FIELDS = {"schedule", "cp_method", "moe_dispatcher", "mixer"}
NAMES = {*SCHEDULES, *METHODS, *DISPATCHERS, *MIXERS}
MLPS = {"dense", "routed", "none"}


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


def test_kinds_of_mlp_are_compared_by_a_kind_of_layer_alone():
    compared = {
        str(path.relative_to(ROOT))
        for path in (*(ROOT / "estimate").rglob("*.py"), *(ROOT / "search").rglob("*.py"))
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Compare) and "mlp" in _words(node) and _words(node) & MLPS
    }
    assert compared == {"estimate/layer/kinds.py"}


class Averaging(Mixer):
    """A mixer that no module of ironlaw names: two products, and nothing across tokens."""

    name, prefix, blocks = "averaging", "averaging ", 1.0

    def parameters(self, model):
        return 2.0 * model.hidden_size * model.hidden_size

    matmul = parameters

    def products(self, job, s):
        width = s.heads / job.model.num_attention_heads * s.hidden
        return {"state in": (s.tokens, width, s.hidden), "state out": (s.tokens, s.hidden, width)}


def test_a_new_mixer_is_a_row_and_nothing_else(monkeypatch, tmp_path):
    assert all(name == row.name for name, row in MIXERS.items())
    monkeypatch.setitem(MIXERS, "averaging", Averaging())
    (tmp_path / "models").mkdir()
    record = (ROOT / "catalog/data/models/llama-3.1-8b.toml").read_text(encoding="utf-8")
    for mixer in ("averaging", "none"):
        groups = f'[[layer_groups]]\ncount = 16\n[[layer_groups]]\ncount = 16\nmixer = "{mixer}"\n'
        (tmp_path / "models" / f"{mixer}.toml").write_text(f"{record}\n{groups}", encoding="utf-8")
    plan = {"gpus": 16, "tp": 2, "pp": 1, "cp": 2, "zero": 1, "recompute": "none", "micro_batch_size": 1, "global_batch_size": 32}

    def ask(model, **changes):
        return ironlaw.estimate(model, on="h100-sxm", seq_len=4096, catalog=[str(tmp_path)], **plan, **changes)

    def forward(answer, layers):
        return float(answer.groups[0].step.tree[f"micro-batches/{layers}/forward"].value[0])

    averaging, without, attending = ask("averaging"), ask("none"), ask("llama-3.1-8b")
    assert averaging.legal.all()
    assert forward(without, "attention-free layers") < forward(averaging, "averaging layers") < forward(attending, "layers")
    assert without.device_bytes[0] < averaging.device_bytes[0] < attending.device_bytes[0]
    assert ask("averaging", lora_rank=16).device_bytes[0] < averaging.device_bytes[0]


def test_no_law_reads_a_label():
    """Code finds terms by key or takes named results: a label may be reworded without moving a number."""
    read = [
        f"{path.relative_to(ROOT)}:{node.lineno}"
        for path in (ROOT / "estimate").rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Attribute) and node.attr in ("startswith", "endswith") and ast.unparse(node.value).endswith(".name")
    ]
    assert read == []
