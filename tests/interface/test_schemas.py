"""The JSON Schemas hold what every verb prints with ``--json``."""

from __future__ import annotations

import copy
import importlib
import json
import sys

import pytest

import paths
from ironlaw import interface
from ironlaw.cli.schema import SCHEMAS
from verbs import QUESTIONS, example

sys.path.insert(0, str(paths.ROOT / "tools"))
tool = importlib.import_module("schemas")
sys.path.pop(0)

MEASURED = paths.DATA / "measured"
ASKED = {
    **{verb: example(verb) for verb in QUESTIONS},
    "estimate": ["estimate", "mixtral-8x7b", "--on", "h100-sxm", "--gpus", "16", "--ep", "8", "--tp", "1", "--pp", "1", "--tokens", "1T"],
    "plan": ["plan", "llama-3-8b", "--on", "h100-sxm", "--gpus", "8", "--global-batch-size", "64", "--fix", "tp=2,cp=1"],
    "diagnose": ["diagnose", str(MEASURED / "v100_resnet50_nw0.json.gz")],
}
MORE = {
    "explained": ["estimate", "llama-3-8b", "--on", "h100-sxm", "--gpus", "8", "--tp", "2", "--pp", "1", "--explain"],
    "cited": ["estimate", "llama-3-8b", "--on", "h100-sxm", "--gpus", "8", "--tp", "2", "--pp", "1", "--cite"],
    "an illegal plan": ["estimate", "llama-3-8b", "--on", "h100-sxm", "--gpus", "8", "--tp", "3", "--pp", "1"],
    "no fit": ["estimate", "llama-3-70b", "--on", "h100-sxm", "--gpus", "1"],
    "a space": ["plan", "llama-3-8b", "--on", "h100-sxm", "--gpus", "8", "--global-batch-size", "64", "--describe-space"],
    "no plan": ["plan", "llama-3.1-405b", "--on", "h100-sxm", "--gpus", "8", "--global-batch-size", "64", "--fix", "cp=1"],
    "a log": ["diagnose", str(MEASURED / "megatron_64xv100.log")],
    "a snapshot": ["diagnose", str(MEASURED / "memory_timeline.raw.gz")],
}


def read(verb):
    return json.loads((SCHEMAS / f"{verb}.json").read_text(encoding="utf-8"))


def broken(verb, data):
    """What of an answer its schema refuses: the first path and message; "" where it holds."""
    jsonschema = pytest.importorskip("jsonschema")
    error = jsonschema.exceptions.best_match(jsonschema.Draft202012Validator(read(verb)).iter_errors(data))
    return "" if error is None else f"{error.json_path}: {error.message[:300]}: run python tools/schemas.py --only {verb}"


def test_every_verb_that_answers_a_question_has_a_schema():
    assert {path.stem for path in SCHEMAS.glob("*.json")} == {*tool.VERBS_WITH_SCHEMA, *tool.OTHERS, *tool.ALONE}


@pytest.mark.parametrize("verb", tool.VERBS_WITH_SCHEMA)
def test_a_schema_is_of_its_draft_and_has_the_shared_parts(verb):
    schema = read(verb)
    assert (schema["$schema"], schema["$id"]) == ("https://json-schema.org/draft/2020-12/schema", f"urn:ironlaw:schema:2:{verb}")
    answer = schema["$defs"].pop("answer")
    assert schema["$defs"] == tool.DEFS and answer["additionalProperties"] is False
    assert all(answer["properties"][key] == form for key, form in tool.FIXED.items())
    assert all(form.get("description") for form in answer["properties"].values())
    pytest.importorskip("jsonschema").Draft202012Validator.check_schema(schema)


@pytest.mark.parametrize("verb", [verb for verb in tool.VERBS_WITH_SCHEMA if verb in QUESTIONS])
def test_the_tables_that_the_code_of_a_verb_names_are_in_its_schema(verb):
    tables, _ = tool.declared(verb)
    assert tables <= set(read(verb)["$defs"]["answer"]["properties"]), f"stale: run python tools/schemas.py --only {verb}"


@pytest.mark.parametrize("verb", ASKED)
def test_the_json_of_a_verb_keeps_to_its_schema(ask, verb):
    out = ask(*ASKED[verb], *([] if "--json" in ASKED[verb] else ["--json"]))[1]
    assert broken(verb, json.loads(out)) == ""


@pytest.mark.parametrize("words", MORE.values(), ids=MORE)
def test_other_forms_of_an_answer_keep_to_the_schema(ask, words):
    assert broken(words[0], json.loads(ask(*words, "--json")[1])) == ""


def test_a_list_of_rows_and_a_difference_keep_to_the_schema(ask, tmp_path):
    rows = tmp_path / "rows.csv"
    rows.write_text("id,model,on,gpus,tp,pp\na,llama-3-8b,h100-sxm,8,2,1\nb,llama-3-8b,h100-sxm,8,4,1\nwrong,llama-3-8b,h100-sxm,x,1,1\n")
    answers = json.loads(ask("estimate", "--rows", rows, "--json")[1])
    assert broken("estimate", answers) == "" and "error" in answers[2]
    for name, answer in zip("ab", answers, strict=False):
        (tmp_path / f"{name}.json").write_text(json.dumps({k: v for k, v in answer.items() if k not in ("id", "line")}))
    out = ask("diff", tmp_path / "a.json", tmp_path / "b.json", "--json")[1]
    assert broken("diff", json.loads(out)) == ""


def test_a_wrong_key_is_refused_at_the_top_and_one_level_below(ask):
    data = json.loads(ask(*ASKED["estimate"], "--json")[1])
    for change in (
        lambda d: d.update(setp=d.pop("step")), lambda d: d["step"].update(second=1.0), lambda d: d["memory"].update(fit=True),
        lambda d: d.update(warnings="none"), lambda d: d["step"].update(seconds="6 s"), lambda d: d["step"]["tree"].pop("unit"),
        lambda d: d.update(schema_version=1), lambda d: d.pop("plan"),
    ):  # fmt: skip
        wrong = copy.deepcopy(data)
        change(wrong)
        assert broken("estimate", wrong)


def test_a_wrong_column_of_a_table_is_refused(ask):
    data = json.loads(ask(*ASKED["money"], "--json")[1])
    assert broken("money", data) == ""
    data["ways"][0]["usd_per_our"] = data["ways"][0].pop("usd_per_hour")
    assert "usd_per_our" in broken("money", data)


def test_columns_have_titles_and_units():
    row = read("money")["$defs"]["answer"]["properties"]["ways"]["items"]["properties"]
    assert row["seconds"]["unit"] == "s" and row["usd"]["unit"] == "USD" and row["way"]["description"] == "payment"
    step = read("estimate")["$defs"]["answer"]["properties"]["step"]["properties"]["seconds"]
    assert step == {"description": "time of one step; null for a plan that is not legal", "unit": "s", "type": ["null", "number"]}


def test_the_command_prints_the_file_and_lists_the_verbs(ask):
    assert ask("schema", "estimate") == (0, (SCHEMAS / "estimate.json").read_text(encoding="utf-8"), "")
    assert ask("schema")[1].split() == sorted([*tool.VERBS_WITH_SCHEMA, *tool.OTHERS, *tool.ALONE])
    status, _, err = ask("schema", "estimat")
    assert status == 2 and "nearest: estimate" in err


def test_the_options_of_all_verbs_are_as_their_schema_says(ask):
    jsonschema = pytest.importorskip("jsonschema")
    assert read("options") == tool.OPTIONS, "run python tools/schemas.py --words"
    for words in ((), ("sites",)):
        data = json.loads(ask("schema", *words, "--options", "--json")[1])
        jsonschema.Draft202012Validator(tool.OPTIONS).validate(data)
        assert {row["name"] for row in data["options"]["estimate"]} <= set(interface_options("estimate"))


def interface_options(verb):
    return [argument.name for argument in interface.arguments(verb)]


def test_shapes_become_closed_objects_maps_and_terms():
    shape = tool.Shape()
    shape.add({"a": 1, "b": [{"c": None}, {"c": "x"}], "by_name": {"h100-sxm": {"x": 1.5}, "b200": {"y": True}}})
    made = tool.schema_of(shape, (), {}, 0)
    assert made["additionalProperties"] is False and made["properties"]["a"]["type"] == ["null", "number"]
    assert made["properties"]["b"]["items"]["properties"]["c"]["type"] == ["null", "string"]
    assert set(made["properties"]["by_name"]["additionalProperties"]["properties"]) == {"x", "y"}
    shape = tool.Shape()
    shape.add({"name": "n", "path": "n", "value": 1, "unit": "s", "total": 1, "law": None, "parts": []})
    assert tool.schema_of(shape, (), {}, 0) == {"$ref": "#/$defs/term"}


OTHERS = {
    "catalog": (["catalog", "list"], ["catalog", "list", "models"], ["catalog", "show", "b200-sxm"], ["catalog", "show", "mixtral-8x7b"]),
    "options": (["schema", "--options"], ["schema", "plan", "--options"]),
    "validate": (["validate", "predictions"],),
    "runs": (["runs", "list"],),
}


@pytest.mark.parametrize("name", OTHERS)
def test_commands_that_are_no_question_keep_to_their_schema(ask, name):
    pytest.importorskip("jsonschema").Draft202012Validator.check_schema(read(name))
    for words in OTHERS[name]:
        assert broken(name, json.loads(ask(*words, "--json")[1])) == ""


def test_a_validation_with_a_wrong_key_is_refused(ask):
    data = json.loads(ask("validate", "predictions", "--json")[1])
    data["prediction"] = data.pop("predictions")
    assert broken("validate", data)
