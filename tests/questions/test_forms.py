"""``--format`` of every question: CSV holds the numbers of the JSON, Markdown is whole, contradictions are refused."""

from __future__ import annotations

import csv
import io
import json
import re
import shlex

import pytest

from ironlaw.cli.main import main
from verbs import QUESTIONS, example, examples

pytestmark = pytest.mark.usefixtures("one_answer")
GEMM = ["roofline", "--gemm", "4096,4096,4096", "--on", "h100-sxm"]


def printed(capsys, command, *more):
    assert main([*command, *more]) in (0, 1), capsys.readouterr().err
    return capsys.readouterr().out


def test_the_questions_are_found():
    assert {"compare", "solve", "sweep", "roofline", "sites", "inference"} <= set(QUESTIONS)


@pytest.mark.parametrize("verb", QUESTIONS)
def test_csv_holds_the_numbers_of_the_json(verb, capsys):
    data = json.loads(printed(capsys, example(verb), "--json"))
    assert {"schema_version", "tool_version", "catalog_hash", "assumptions", "warnings"} <= set(data)
    text = printed(capsys, example(verb), "--format", "csv")
    blocks = text.strip("\n").split("\n\n")
    for block in blocks:
        lines = block.splitlines()
        name = re.match(r"# (\w+): ", lines[0])
        rows = list(csv.reader(io.StringIO("\n".join(lines[1:] if name else lines))))
        assert name or len(blocks) == 1
        if not name:
            continue
        assert len(rows) - 1 == len(data[name[1]])
        for at, head in enumerate(rows[0]):
            key = head.partition(" [")[0]
            for row, want in zip(rows[1:], data[name[1]], strict=True):
                if isinstance(want.get(key), float):
                    assert float(row[at]) == want[key], (name[1], key)
                elif want.get(key) is None:
                    assert row[at] == ""


@pytest.mark.parametrize("verb", QUESTIONS)
def test_markdown_tables_have_equal_rows(verb, capsys):
    text = printed(capsys, example(verb), "--format", "markdown")
    assert text.startswith("# ")
    width = None
    for line in text.splitlines():
        if not line.startswith("|"):
            width = None
            continue
        cells = len(re.findall(r"(?<!\\)\|", line))
        width = width or cells
        assert cells == width, line


def test_one_table_by_name(capsys):
    text = printed(capsys, GEMM, "--format", "csv:roofs")
    assert text.startswith("roof,rate,")
    assert printed(capsys, GEMM, "--format", "markdown:roofs").startswith("## Time at each roof")


def test_json_is_a_format(capsys):
    assert json.loads(printed(capsys, GEMM, "--format", "json")) == json.loads(printed(capsys, GEMM, "--json"))
    assert printed(capsys, GEMM, "--format", "table") == printed(capsys, GEMM)


@pytest.mark.parametrize(
    "more",
    [
        ["--format", "xml"],
        ["--format", ""],
        ["--format", "csv:"],
        ["--format", "csv:nothing"],
        ["--format", "table:roofs"],
        ["--json", "--format", "csv"],
        ["--format", "csv", "--explain"],
    ],
)
def test_contradictory_formats_are_refused(more, capsys):
    assert main([*GEMM, *more]) == 2
    assert len(capsys.readouterr().err.strip().splitlines()) == 1


def test_csv_of_an_answer_without_a_table_is_refused(capsys):
    assert main(["optimize", "--gpu-utilization", "45%", "--format", "csv"]) == 2
    assert "no table" in capsys.readouterr().err


@pytest.mark.parametrize("verb", ["sites", "money", "goodput"])
def test_help_promises_no_answer_without_tokens_where_there_is_none(ask, verb):
    assert "absent: no run section" not in " ".join(ask(verb, "--help")[1].split())


@pytest.mark.parametrize("verb", QUESTIONS)
def test_help_shows_the_examples(verb, ask):
    shown = re.findall(r"^ +ironlaw (.+)$", ask(verb, "--help")[1], re.MULTILINE)
    assert shown and [shlex.split(line) for line in shown] == examples(verb)


LONG = ("compare --deadline", "elastic --lost", "sweep --capacity-factor")  # verb and option of examples that take seconds
EXAMPLES = [
    pytest.param(words, marks=pytest.mark.slow if any({*long.split()} <= {*words} for long in LONG) else (), id=" ".join(words))
    for verb in QUESTIONS
    for words in examples(verb)
    if words != example(verb)  # which the forms above print
]


@pytest.mark.parametrize("words", EXAMPLES)
def test_examples_of_the_help_are_answered(words, capsys):
    assert main(words) in (0, 1), capsys.readouterr().err
