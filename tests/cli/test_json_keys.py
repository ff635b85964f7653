"""The keys that the JSON of every answer has."""

from __future__ import annotations

import json
from pathlib import Path

from ironlaw.catalog import load


def test_the_axes_of_a_space_have_the_keys_of_every_answer(ask):
    out = ask("plan", "llama-3-8b", "--on", "h100-sxm", "--gpus", "8", "--global-batch-size", "64", "--describe-space", "--json")[1]
    assert {"schema_version", "tool_version", "catalog_hash", "assumptions", "warnings", "axes"} <= set(json.loads(out))


def test_scores_have_the_keys_of_every_answer(ask, tmp_path):
    shipped = Path(load.__file__).parents[1] / "validate" / "data" / "runs.csv"
    few = tmp_path / "runs.csv"
    few.write_text("".join(shipped.read_text().splitlines(keepends=True)[:4]))
    found = json.loads(ask("validate", "--runs", few, "--json")[1])
    assert {"schema_version", "tool_version", "catalog_hash", "assumptions", "warnings", "headline"} <= set(found)


def test_every_verb_that_reads_the_catalogue_names_its_calibration(ask, tmp_path):
    plan = ("llama-3-8b", "--on", "h100-sxm", "--gpus", "8")
    asked = {
        "estimate": plan, "money": (*plan, "--tokens", "1T"), "goodput": (*plan, "--tokens", "1T"), "solve": (*plan, "--tokens", "1T"),
        "roofline": plan, "inference": ("llama-3-8b", "--on", "h100-sxm"), "compare": plan,
    }  # fmt: skip
    told = {verb: json.loads(ask(verb, *flags, "--json")[1])["calibration_version"] for verb, flags in asked.items()}
    assert set(told.values()) == {load.record("calibration", "h100-sxm").version}

    (tmp_path / "calibration").mkdir()
    shipped = (Path(load.__file__).parent / "data" / "calibration" / "h100-sxm.toml").read_text()
    (tmp_path / "calibration" / "h100-sxm.toml").write_text(shipped.replace('version = "2026.11"', 'version = "mine-1"'))
    own = [json.loads(ask(verb, *asked[verb], "--json", "--catalog", tmp_path)[1])["calibration_version"] for verb in ("estimate", "money")]
    assert own == ["mine-1", "2026.11, mine-1"]
