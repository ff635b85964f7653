"""Kinds are rows of a table or records of the catalogue: no module compares the name of one."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import ironlaw
from ironlaw.catalog import load
from ironlaw.estimate.fabric import group_links
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
        (group_links.COLLECTIVES, COLLECTIVES),
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


def test_names_of_mixers_are_compared_nowhere():
    compared = [
        f"{path.relative_to(ROOT)}:{node.lineno}"
        for path in (*(ROOT / "estimate").rglob("*.py"), *(ROOT / "search").rglob("*.py"))
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Compare) and _words(node) & FIELDS and _words(node) & NAMES
    ]
    assert compared == []


KINDS = ("accelerators", "nodes", "fabrics", "frameworks", "optimizers", "models", "objectives")
# words that are compared and spelled like a record, with the reason why they are none; file and comparison, so that a new one fails
OTHER_WORDS = {
    ("launch/megatron/options.py", "kind not in ('alltoall', 'flex')"): "values of --moe-token-dispatcher-type",
    ("launch/megatron/options.py", "name == 'sgd'"): "a value of --optimizer of Megatron-LM",
    ("launch/megatron/options.py", "name == 'adam'"): "a value of --optimizer of Megatron-LM",
    ("launch/shell.py", "word.rpartition('/')[2] in TRAINER_COMMANDS"): "commands that start a trainer",
    ("launch/write/launchers.py", "start.by == 'deepspeed'"): "commands that start a trainer",
    ("launch/write/tables.py", "name not in FRAMEWORKS"): "words of --for",
    ("trainers/read.py", "one.name not in LAUNCHERS"): "files that start a trainer",
    ("question/recipes.py", "word not in _SILENT"): "words that say nothing in the text of a precision",
    ("questions/sites/exchange.py", "way == 'ring'"): "how sites exchange: ring, tree or pipe",
}


def _names_of_records() -> frozenset[str]:
    """All names that a record of the catalogue or a row of a table of kinds has, and the architectures of accelerators."""
    names = {name for kind in KINDS for name in load.names(kind)}
    architectures = {load.record("accelerators", name).architecture for name in load.names("accelerators")}
    return frozenset({*names, *architectures, *defaults.SCHEDULES, *defaults.DISPATCHERS, *defaults.CP_METHODS})


def _texts(node: ast.AST, constants: dict[str, set[str]]) -> set[str]:
    """The texts that an operand is or lists, also by the name of a constant of its module."""
    if isinstance(node, ast.Constant):
        return {node.value} if isinstance(node.value, str) else set()
    if isinstance(node, ast.Name):
        return constants.get(node.id, set())
    if isinstance(node, ast.Dict):
        parts: list[ast.AST] = [key for key in node.keys if key is not None]
    elif isinstance(node, ast.BoolOp):
        parts = list(node.values)
    elif isinstance(node, ast.IfExp):
        parts = [node.body, node.orelse]
    elif isinstance(node, ast.Call) and ast.unparse(node.func) in ("frozenset", "set", "tuple"):
        parts = list(node.args)
    else:
        parts = list(getattr(node, "elts", ()))
    return set().union(*(_texts(part, constants) for part in parts))


def compared_with(source: str, names: frozenset[str]) -> list[tuple[int, str]]:
    """Line and text of every comparison with one of some names: ==, in, match, startswith, endswith."""
    tree = ast.parse(source)
    constants: dict[str, set[str]] = {}
    for node in tree.body:
        targets = node.targets if isinstance(node, ast.Assign) else [node.target] if isinstance(node, ast.AnnAssign) else []
        for target in targets:
            if isinstance(target, ast.Name) and node.value is not None and not isinstance(node.value, ast.Dict):
                constants[target.id] = _texts(node.value, constants)
    found = []
    for node in ast.walk(tree):
        operands: list[ast.AST] = []
        if isinstance(node, ast.Compare):
            operands = [node.left, *node.comparators]
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in ("startswith", "endswith"):
            operands = list(node.args)
        elif isinstance(node, ast.MatchValue):
            operands = [node.value]
        if set().union(*(_texts(operand, constants) for operand in operands)) & names:
            found.append((node.lineno if hasattr(node, "lineno") else 0, ast.unparse(node)))
    return found


def test_code_compares_no_name_of_a_record():
    """What differs between accelerators, architectures, stacks, schedules and so on is a field of the record or of the row."""
    names = _names_of_records()
    found = {
        (str(path.relative_to(ROOT)), text): line
        for path in ROOT.rglob("*.py")
        for line, text in compared_with(path.read_text(encoding="utf-8"), names)
    }
    assert {place: line for place, line in found.items() if place not in OTHER_WORDS} == {}
    assert OTHER_WORDS.keys() <= found.keys(), "a word of the list is compared no longer: strike it"


@pytest.mark.parametrize(
    "source",
    [
        'device.architecture != "hopper"',
        'FIRST = ("hopper", "blackwell")\nif device.architecture in FIRST:\n    pass',
        'job.schedule in {"zero-bubble", other}',
        'record == ("maxtext" if tpu else "nemo")',
        'plan["framework"].startswith(("megatron", "x"))',
        'match name:\n    case "deepep":\n        pass',
        'NAMES = frozenset(("adamw",))\nname in NAMES',
        '"nemo" in cells.get("framework", "").lower()',
    ],
)
def test_a_comparison_with_a_record_is_found(source):
    assert compared_with(source, _names_of_records())


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
