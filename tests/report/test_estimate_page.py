"""The page of an estimate: the run in units of its size."""

from __future__ import annotations

import re

import pytest


def run_of(ask, tokens, gpus="8"):
    page = ask("estimate", "qwen-3-0.6b", "--on", "h100-sxm", "--gpus", gpus, "--tokens", tokens)[1]
    lines = page.splitlines()
    return lines[next(i for i, line in enumerate(lines) if line.startswith("The run of")) + 1].strip()


@pytest.mark.parametrize("tokens", ["1k", "1M", "1B", "100B", "20T"])
def test_a_run_of_any_size_has_no_zero(ask, tokens):
    shown = run_of(ask, tokens)
    assert not re.search(r"(?<![\d.,])0(\.0+)? (days|GPU-hours|USD|J|Wh|kWh|MWh|g|kg|t)\b", shown), shown
    parts = (r"[\d.,]+ (ms|s|h|days)", r"[\d.,e-]+ GPU-hours", r"[\d.,e-]+ USD", r"[\d.,]+ (J|Wh|kWh|MWh|GWh)", r"[\d.,]+ (g|kg|t) CO2e")
    assert re.fullmatch(", ".join(parts), shown)


def test_units_grow_with_the_run(ask):
    assert [run_of(ask, tokens).split()[-4] for tokens in ("1M", "1B", "1T")] == ["Wh,", "kWh,", "MWh,"]
