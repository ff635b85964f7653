"""``ironlaw read`` and the verbs that take a trainer's configuration as MODEL."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import ironlaw
from ironlaw.trainers.tables import DATA, table_of, trainers

TRAIN = """base_model: gpt-2
micro_batch_size: 2
sequence_len: 512
sample_packing: true
gradient_accumulation_steps: 4
bf16: true
fsdp_version: 2
"""


@pytest.fixture
def train(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.yaml").write_text(TRAIN)
    return "train.yaml"


def test_an_estimate_of_a_file_is_that_of_its_options(ask, train):
    machine = ("--on", "a100-sxm-80gb", "--gpus", 8)
    given = json.loads(ask("read", train, "--gpus", 8, "--json")[1])["options"]
    flags = [word for name, value in given.items() if name != "model" for word in (f"--{name.replace('_', '-')}", value)]
    plain = json.loads(ask("estimate", "gpt-2", *machine, *flags, "--json")[1])
    found = json.loads(ask("estimate", train, *machine, "--json")[1])
    assert found["step"]["seconds"] == plain["step"]["seconds"] and found["plan"] == plain["plan"]


def test_flags_count_before_the_file(ask, train):
    found = json.loads(ask("estimate", train, "--on", "a100-sxm-80gb", "--gpus", 8, "--micro-batch-size", 1, "--json")[1])
    assert (found["plan"]["micro_batch_size"], found["plan"]["num_microbatches"]) == (1, 8)


@pytest.mark.parametrize("verb", ["plan", "compare"])
def test_a_search_keeps_the_job_and_leaves_the_plan_open(ask, train, verb):
    status, out, err = ask(verb, train, "--on", "a100-sxm-80gb", "--gpus", 8, "--short")
    assert status == 0 and "the plan of the file is left open: tp, " in err and out


def test_what_read_prints_keeps_to_its_schema(ask, train, tmp_path):
    jsonschema = pytest.importorskip("jsonschema")
    schema = json.loads((Path(ironlaw.__file__).parent / "schemas" / "read.json").read_text(encoding="utf-8"))
    jsonschema.Draft202012Validator.check_schema(schema)
    (tmp_path / "odd.yaml").write_text(TRAIN + "wibble: [1]\ntiled_mlp: .inf\nlearning_rate: .nan\n")
    for words, status in (((train, "--gpus", 8), 0), (("odd.yaml",), 1)):
        found, out, _ = ask("read", *words, "--json")
        assert found == status
        jsonschema.validate(json.loads(out), schema)


def test_a_file_of_no_trainer_is_refused(ask, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "x.yaml").write_text("title: a page\n")
    status, out, err = ask("read", "x.yaml")
    assert (status, out) == (3, "") and "x.yaml: no configuration of a trainer that is known" in err


@pytest.mark.parametrize("name", [trainer.name for trainer in trainers() if (DATA / f"{trainer.name}.toml").is_file()])
def test_a_table_says_one_thing_of_each_key_and_where_it_is_from(name):
    table = table_of(name)
    listed = [*table.takes, *table.ignored, *table.refused, *table.includes]
    assert len(listed) == len(set(listed)) and table.url.startswith("https://") and table.version
    for key, row in table.takes.items():
        plain = row.to and not (row.map or row.on or row.matches)
        ways = [bool(way) for way in (plain, row.map, row.matches, row.on, row.approximate)]
        assert sum(ways) == 1, key


def test_a_plain_model_imports_no_reader():
    import subprocess
    import sys

    code = "import sys; from ironlaw.cli.main import main; main(['estimate', 'gpt-2', '--on', 'h100-sxm', '--gpus', '8', '--quiet']);"
    code += " print([name for name in sys.modules if name == 'yaml' or name.startswith('ironlaw.trainers.r')])"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip() == "[]"
