"""``ironlaw again``: the question of a saved answer asked anew. What did not move, what moved, and files that hold no question."""

from __future__ import annotations

import json

import pytest

import ironlaw

HELD = ("--tp", 2, "--pp", 1, "--zero", 1, "--micro-batch-size", 1, "--recompute", "none", "--global-batch-size", 64)
QUESTIONS = {
    "estimate": ("llama-3-8b", "--on", "h100-sxm", "--gpus", 8, "--tokens", "1T", *HELD),
    "plan": ("llama-3-8b", "--on", "h100-sxm", "--gpus", 8, "--global-batch-size", 64, "--minimize", "cost", "--tokens", "1T"),
    "money": ("llama-3-8b", "--on", "h100-sxm", "--gpus", 8, "--tokens", "1T", *HELD),
    "scaling": ("--parameters", "8B", "--tokens", "160B"),
}


@pytest.fixture
def saved(ask, tmp_path):
    """An answer in a file; ``edit`` changes its data."""

    def save(verb, edit=None):
        data = json.loads(ask(verb, *QUESTIONS[verb], "--json")[1])
        if edit:
            edit(data)
        path = tmp_path / f"{verb}.json"
        path.write_text(json.dumps(data))
        return path

    return save


@pytest.mark.parametrize("verb", QUESTIONS)
def test_an_answer_of_today_has_not_moved(verb, saved, ask):
    path = saved(verb)
    status, out, err = ask("again", path)
    assert (status, err) == (0, "") and out.startswith(f"{path.name} asked again") and "The answers are the same." in out
    assert ironlaw.again(str(path))["equal"] is True


def test_a_value_that_moved_is_told_with_its_share(saved, ask):
    def older(data):
        data["step"]["seconds"] *= 1.25
        data["calibration_version"] = "2020.01"

    status, out, _ = ask("again", saved("estimate", older), "--json")
    found = json.loads(out)
    (step,) = [row for row in found["moved"] if row["value"] == "step [s]"]
    assert status == 1 and step["share"] == pytest.approx(-0.2, rel=1e-12) and step["now"] == pytest.approx(0.8 * step["saved"], rel=1e-12)
    (version,) = found["versions"]
    assert version["version"] == "calibration_version" and version["a"] == "2020.01" and not found["feasible"]


def test_a_value_of_a_verb_of_an_earlier_schema_that_moved_is_told(saved, ask):
    def older(data):
        data["gpus"] /= 2
        data["schema_version"] = 1
        data["headline"] = [one["text"] for one in data["headline"]]
        data["warnings"] = [one["sentence"] for one in data["warnings"]]

    status, out, _ = ask("again", saved("money", older), "--json")
    found = json.loads(out)
    assert status == 1 and found["moved"] == [{"value": "gpus", "saved": 4, "now": 8, "difference": 4, "share": 1.0}]
    assert [row["version"] for row in found["versions"]] == ["schema_version"]


def test_the_plan_is_chosen_anew_and_the_options_are_kept(saved, ask):
    def other_plan(data):
        data["plans"] = data["plans"][1:]

    path = saved("plan", other_plan)
    status, out, _ = ask("again", path, "--json")
    found = json.loads(out)
    assert status == 1 and found["plan"] and found["inputs"] == []


def test_a_report_is_asked_again(ask, tmp_path):
    path = tmp_path / "report.html"
    ask("estimate", *QUESTIONS["estimate"], "--html", path)
    text = (
        path.read_text().replace("ironlaw estimate", "rm -rf /; ironlaw estimate").replace('"command":["estimate"', '"command":["validate"')
    )
    path.write_text(text)
    status, out, _ = ask("again", path)
    assert status == 0 and "The answers are the same." in out  # the command for people is not read


@pytest.mark.parametrize(
    ("text", "status", "said"),
    [
        ("", 3, "not JSON"),
        ("[]", 3, "no answer of ironlaw"),
        ("{}", 3, "no answer of ironlaw"),
        ('{"schema_version": 9}', 3, "schema version 9"),
        ('{"schema_version": true}', 3, "schema version"),
        ('{"schema_version": 2, "feasible": true}', 3, "headline"),
        ('{"schema_version": 2, "feasible": true, "headline": [], "assumptions": [], "asked": 5}', 3, "asked"),
        ('{"schema_version": 2, "plans": [], "space": {}}', 3, "no plan"),
        ('{"schema_version": 2, "files": [], "findings": []}', 2, "diagnose"),
        ("<p>no report</p>", 3, "no report"),
        ("[" * 100_000, 3, "nested"),
    ],
)
def test_a_file_without_a_question_is_refused_in_one_line(text, status, said, ask, tmp_path):
    path = tmp_path / "x.json"
    path.write_text(text)
    found, out, err = ask("again", path)
    assert (found, out, err.count("\n")) == (status, "", 1) and said in err


@pytest.mark.parametrize("verb", ["../../search", "diff", "again", "os", "", "catalog", "x.y"])
def test_only_verbs_that_ask_a_question_are_asked(verb, saved, ask):
    def other(data):
        data["asked"]["verb"] = verb

    status, out, err = ask("again", saved("scaling", other))
    assert status in (2, 3) and out == "" and err.count("\n") == 1


def test_a_missing_file_is_named(ask):
    assert ask("again")[0] == 2
    status, _, err = ask("again", "no-such.json")
    assert status == 3 and "no-such.json" in err
