"""A refusal under ``--json`` is an object on standard output: code, option, value, message, near names and offers."""

from __future__ import annotations

import json

import pytest

from ironlaw.cli.main import VERBS
from ironlaw.cli.schema import SCHEMAS
from ironlaw.errors import IronlawError, PlanError, UnitError, UnknownNameError, codes, first_option, speaking_of

SCHEMA = json.loads((SCHEMAS / "error.json").read_text(encoding="utf-8"))
LLAMA = ["llama-3-8b", "--on", "h100-sxm", "--gpus", "8"]
WRONG = {  # words, exit status, code, option, value
    "a model": (["estimate", "llama-3-71b", *LLAMA[1:]], 2, "unknown-name", "model", "llama-3-71b"),
    "a device": (["money", "llama-3-8b", "--on", "h100-smx", "--gpus", "8", "--tokens", "1T"], 2, "unknown-name", "on", "h100-smx"),
    "no number": (["estimate", *LLAMA[:-1], "x"], 2, "unit", "gpus", "x"),
    "no unit": (["money", *LLAMA, "--tokens", "1 apple"], 2, "unit", "tokens", "1 apple"),
    "nothing": (["goodput", "llama-3-8b", "--on", "h100-sxm", "--tokens", "1T"], 2, "missing-option", "gpus", None),
    "an option": (["estimate", *LLAMA, "--no-such-option", "1"], 2, "unknown-option", "no_such_option", None),
    "a file": (["diff", "no-such-a.json", "no-such-b.json"], 3, "input", None, None),
    "a trace": (["diagnose", "no-such-trace.json"], 3, "input", None, None),
}


def refused(ask, words):
    """The error of words that are refused, after checking that nothing else stands on standard output."""
    pytest.importorskip("jsonschema").validate(found := json.loads(ask(*words, "--json")[1]), SCHEMA)
    return found["error"]


@pytest.mark.parametrize(("words", "status", "code", "option", "value"), WRONG.values(), ids=WRONG)
def test_an_error_under_json_is_an_object_with_the_same_status(ask, words, status, code, option, value):
    plain_status, out, err = ask(*words)
    assert (plain_status, out) == (status, "")
    json_status, _, json_err = ask(*words, "--json")
    assert (json_status, json_err) == (status, err)
    error = refused(ask, words)
    assert (error["code"], error["option"], error["value"]) == (code, option, value)
    assert err == f"ironlaw: {error['message']}\n"


@pytest.mark.parametrize("verb", [verb for verb in VERBS if verb != "completion"])
def test_every_verb_refuses_an_unknown_option_in_the_same_form(ask, verb):
    error = refused(ask, [verb, "--no-such-option", "1"])
    assert error["code"] in {"unknown-option", "missing-option", "question"} and error["message"]


def test_an_impossible_plan_offers_the_nearest_numbers_of_accelerators(ask):
    error = refused(ask, ["money", "llama-3-70b", "--on", "h100-sxm", "--gpus", "7", "--tp", "8", "--tokens", "1T"])
    assert error["code"] == "plan" and error["offers"] and {offer["option"] for offer in error["offers"]} == {"gpus"}
    for offer in error["offers"]:
        words = ["money", "llama-3-70b", "--on", "h100-sxm", "--gpus", f"{offer['value']:g}", "--tp", "8", "--tokens", "1T"]
        assert ask(*words)[0] in (0, 1)


def test_a_wrong_row_has_the_whole_error(ask, tmp_path):
    rows = tmp_path / "rows.csv"
    rows.write_text("id,model,on,gpus\na,llama-3-8,h100-sxm,8\n")
    (row,) = json.loads(ask("estimate", "--rows", rows, "--json")[1])
    assert row["error"]["option"] == "model" and "llama-3-8b" in row["error"]["nearest"]


def test_errors_know_their_option():
    assert first_option("missing option --gpus N") == "gpus" and first_option("a.json: run ironlaw estimate --json again") is None
    assert IronlawError("--tp is 3").option == "tp"
    error = UnknownNameError("accelerator", "h100", ["h100-sxm", "b200"])
    assert (error.option, error.value, error.nearest) == ("on", "h100", ["h100-sxm"])
    with pytest.raises(UnitError) as found, speaking_of("seq_len", "4 apples"):
        raise UnitError("no such unit")
    assert (found.value.option, found.value.value) == ("seq_len", "4 apples")
    assert PlanError("no", offers=[{"option": "gpus", "value": 8.0}]).data()["offers"] == [{"option": "gpus", "value": 8.0}]


def test_the_schema_has_every_code():
    assert SCHEMA["$defs"]["error"]["properties"]["code"]["enum"] == codes()
