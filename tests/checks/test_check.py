"""``ironlaw check`` finds planted mistakes on their lines, prints them in every form, and is silent on good files."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path

import pytest

import ironlaw
from ironlaw.checks.check import check
from ironlaw.checks.finding import KINDS

MISTAKES = tomllib.loads((Path(__file__).parent / "mistakes.toml").read_text(encoding="utf-8"))
GOOD = (  # a configuration that fits, and that no change which is tried makes faster
    "base_model: llama-3.2-1b\nmicro_batch_size: 4\nsequence_len: 2048\nsample_packing: true\nbf16: true\ndeepspeed: ds.json\n"
    "gradient_accumulation_steps: 1\nlearning_rate: 1e-5\n"
)


@pytest.mark.parametrize("case", MISTAKES)
def test_a_planted_mistake_is_found_on_its_line(tmp_path, monkeypatch, case):
    row = MISTAKES[case]
    monkeypatch.chdir(tmp_path)
    Path(row["file"]).write_text(row["text"])
    files = f"{row['with']},{row['file']}" if "with" in row else row["file"]
    found = check(files, {name: row[name] for name in ("on", "gpus") if name in row})
    kind, line = row["finds"]
    assert (kind, line) in {(finding.id, finding.line) for finding in found}, found
    assert all(finding.file == row["file"] and finding.id in KINDS for finding in found)


def test_a_good_file_has_no_findings(ask, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("x.yaml").write_text(GOOD)
    Path("ds.json").write_text('{"zero_optimization": {"stage": 1}, "bf16": {"enabled": "auto"}}')
    assert ask("check", "x.yaml", "--on", "h100-sxm", "--gpus", 8) == (0, "no findings\n", "")


def test_what_a_change_gains_is_the_difference_of_two_estimates(ask, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("x.yaml").write_text(MISTAKES["recomputation that is not needed"]["text"])
    machine = ("--on", "h100-sxm", "--gpus", 8)
    found = json.loads(ask("check", "x.yaml", *machine, "--json")[1])["findings"]
    told = next(one for one in found if one["id"] == "recomputation-not-needed")
    before, after = (
        json.loads(ask("estimate", "x.yaml", *machine, *more, "--json")[1])["step"]["seconds"] for more in ((), ("--recompute", "none"))
    )
    assert told["change"] == "recompute none" and told["seconds"] == pytest.approx(before - after)


def test_a_run_that_does_not_fit_is_told_what_makes_it_fit(ask, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("x.yaml").write_text(MISTAKES["does not fit"]["text"])
    machine = ("--on", "a100-sxm-40gb", "--gpus", 8)
    told = json.loads(ask("check", "x.yaml", *machine, "--json")[1])["findings"][0]
    flags = [word for part in told["change"].split(", ") for word in (f"--{part.split()[0].replace('_', '-')}", part.split()[1])]
    assert told["bytes"] > 0 and flags and ask("estimate", "x.yaml", *machine, *flags, "--quiet")[0] == 0


def test_findings_have_every_form_and_all_files_are_checked(ask, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("x.yaml").write_text("base_model: gpt-2\nmicro_batch_size: 1\nlora_r: 8\nwibble: 1\n")
    Path("y.yaml").write_text("base_model: [\n")
    Path("z.yaml").write_text("title: a page\n")
    words = ("check", "x.yaml", "y.yaml", "z.yaml")
    status, out, _ = ask(*words)
    assert status == 1 and [line.partition(" ")[0] for line in out.splitlines()] == ["x.yaml:4:1:", "x.yaml:3:1:", "y.yaml:2:1:", "z.yaml:"]
    log = json.loads(ask(*words, "--format", "sarif")[1])
    results = log["runs"][0]["results"]
    assert log["version"] == "2.1.0" and [one["level"] for one in results] == ["warning", "warning", "error", "note"]
    rules = [rule["id"] for rule in log["runs"][0]["tool"]["driver"]["rules"]]
    assert [rules[one["ruleIndex"]] for one in results] == [one["ruleId"] for one in results]
    assert ask(*words, "--format", "github")[1].startswith(
        "::warning file=x.yaml,line=4,col=1,title=unknown-setting::wibble: no key of axolotl"
    )
    jsonschema = pytest.importorskip("jsonschema")
    schema = json.loads((Path(ironlaw.__file__).parent / "schemas" / "check.json").read_text(encoding="utf-8"))
    jsonschema.validate(json.loads(ask(*words, "--json")[1]), schema)


def test_a_wrong_machine_is_a_wrong_question(ask, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("x.yaml").write_text("base_model: gpt-2\nmicro_batch_size: 1\n")
    assert ask("check", "x.yaml", "--on", "h999", "--gpus", 8)[0] == 2
    assert ask("check", "x.yaml", "--on", "h100-sxm", "--gpus", "x")[0] == 2
    status, out, _ = ask("check", "x.yaml")
    assert status == 0 and "--on, --gpus is missing [no-machine]" in out
