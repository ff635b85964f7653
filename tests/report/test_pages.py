"""Pages of many questions: as long as a screen or two, tables as wide as one, and nothing lost that is not named."""

from __future__ import annotations

import re

import pytest

LINES, WIDTH = 70, 160
QUESTIONS = (
    ("estimate", "llama-2-13b", "--on", "h100-sxm", "--gpus", "64"),
    ("estimate", "llama-3-70b", "--on", "h100-sxm", "--gpus", "512", "--tokens", "15T"),
    (
        "estimate",
        "deepseek-v3",
        "--on",
        "h100-sxm",
        "--gpus",
        "2000",
        "--tokens",
        "15T",
        "--ep",
        "16",
        "--tp",
        "1",
        "--pp",
        "1",
        "--zero",
        "3",
    ),
    ("estimate", "deepseek-v3", "--on", "gb200", "--gpus", "2048", "--ep", "64", "--tp", "1", "--pp", "4"),
    ("estimate", "mixtral-8x7b", "--on", "h100-sxm", "--gpus", "64"),
    ("estimate", "nemotron-h-8b", "--on", "h100-sxm", "--gpus", "8"),
    ("estimate", "llama-3-8b", "--on", "rtx-4090", "--gpus", "1", "--qlora", "--seq-len", "2048"),
    ("estimate", "gpt-3-175b", "--on", "tpu-v5p", "--gpus", "512"),
    ("plan", "llama-3-8b", "--on", "h100-sxm", "--gpus", "16", "--global-batch-size", "128"),
    ("plan", "llama-3-8b", "--on", "h100-sxm", "--gpus", "2..64", "--tokens", "1T", "--deadline", "30"),
    ("compare", "llama-2-13b", "--on", "h100-sxm,a100-sxm-80gb,mi300x,b200,tpu-v5p", "--gpus", "64", "--tokens", "400B"),
    ("optimize", "llama-2-13b", "--on", "h100-sxm", "--gpus", "64"),
    ("optimize", "llama-3-70b", "--on", "h100-sxm", "--gpus", "512"),
    ("solve", "llama-3-8b", "--on", "h100-sxm", "--gpus", "64", "--tokens", "1T"),
)


@pytest.mark.parametrize("words", QUESTIONS, ids=lambda words: " ".join(words[:6]))
def test_a_page_is_short_and_its_tables_are_narrow(ask, words):
    status, page, error = ask(*words)
    assert status in (0, 1), error
    lines = page.rstrip("\n").split("\n")
    assert len(lines) <= LINES
    in_tables = [line for line in lines if re.search(r"\S {2,}\S", line) and not line.startswith("warning")]
    assert max(map(len, in_tables), default=0) <= WIDTH


def test_small_parts_of_a_step_are_summed_not_dropped(ask):
    page = ask("estimate", "llama-2-13b", "--on", "h100-sxm", "--gpus", "64")[1]
    shares = [float(share) for share in re.findall(r"^  \S.*? ([0-9.]+)%(?: [█▉▊▋▌▍▎▏]+)?$", page.split("Memory of")[0], re.MULTILINE)]
    assert "parts under 1% (--explain)" in page and shares
    assert all(float(s) >= 1.0 for s in re.findall(r"^    +\S.*? ([0-9.]+)% [█▉▊▋▌▍▎▏]", page.split("Memory of")[0], re.MULTILINE))


def test_a_second_kind_of_layer_with_the_same_parts_is_listed_once(ask):
    page = ask(*QUESTIONS[2])[1]
    assert "multi-token-prediction layers (alike)" in page and page.count("  routed layers ") == 1
    assert "experts in gemm" in page and page.count("experts in gemm") == 1


def test_what_a_page_leaves_out_is_named_and_in_the_other_forms(ask):
    words = ("compare", "llama-3-8b", "--on", "h100-sxm,a100-sxm-80gb", "--gpus", "16")
    page = ask(*words)[1]
    assert "not shown: tables " in page and "storage" in page.split("not shown: ")[1].split("\n")[0]
    assert "checkpoint" in ask(*words, "--format", "csv:storage")[1]
    assert "Storage of checkpoints" in ask(*words, "--checkpoints-kept", "3")[1]


def test_a_short_page_prints_its_warnings(ask):
    words = ("estimate", "gpt-3-175b", "--on", "rtx-4090", "--gpus", "8")
    long = [line for line in ask(*words)[1].split("\n") if line.startswith("warning: ")]
    short = [line for line in ask(*words, "--short")[1].split("\n") if line.startswith("warning: ")]
    assert long and short == long


def test_a_deadline_is_a_question_of_solve(ask):
    status, _, error = ask("estimate", "llama-3-8b", "--on", "h100-sxm", "--gpus", "8", "--deadline", "30")
    assert status == 2 and "ironlaw solve MODEL" in error
