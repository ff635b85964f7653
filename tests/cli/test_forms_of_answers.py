"""Forms of an answer, the same in every verb: short help, --short, --quiet, --format, switches that stand alone."""

from __future__ import annotations

import csv
import io
import json

import click
import pytest

from ironlaw.cli.flags import SWITCH, read_words
from ironlaw.cli.help import AnswerCommand
from ironlaw.cli.main import VERBS, command_of
from ironlaw.question.options import OPTIONS
from verbs import ACTIONS, QUESTIONS, example

pytestmark = pytest.mark.usefixtures("one_answer")
ASK = ("estimate", "llama-3-8b", "--on", "h100-sxm", "--gpus", "8", "--global-batch-size", "64")
PLAN = ("plan", "llama-3-8b", "--on", "h100-sxm", "--gpus", "8", "--global-batch-size", "64", "--fix", "cp=1")
LEAVES = [(verb,) for verb in VERBS if verb not in ACTIONS] + [(verb, action) for verb, found in ACTIONS.items() for action in found]


def leaf(words):
    command = command_of(words[0])
    return command.commands[words[1]] if len(words) > 1 else command


@pytest.mark.parametrize("words", LEAVES, ids=" ".join)
def test_every_command_has_quiet_and_both_helps(ask, words):
    assert isinstance(leaf(words), AnswerCommand)
    short, whole = ask(*words, "--help")[1], ask(*words, "--help-all")[1]
    assert "--quiet" in short and "--help-all" in short
    assert len(whole) >= len(short)
    for param in leaf(words).params:
        if isinstance(param, click.Option) and not param.hidden:
            assert param.opts[0] in short and param.opts[0] in whole


@pytest.mark.parametrize("verb", ["estimate", "plan", "money", "diagnose"])  # their own options have other names
def test_a_short_help_describes_the_usual_options_and_names_the_others(ask, verb):
    described = {line.split()[0] for line in ask(verb, "--help")[1].splitlines() if line.startswith("  --")}
    usual = {f"--{name.replace('_', '-')}" for name, option in OPTIONS.items() if option.usual and name != "model"}
    rare = {f"--{name.replace('_', '-')}" for name, option in OPTIONS.items() if not option.usual}
    others = rare & {param.opts[0] for param in command_of(verb).params}
    assert usual <= described
    own = (
        {f"--{name.replace('_', '-')}" for name in __import__("ironlaw.search.question", fromlist=["OWN"]).OWN} if verb == "plan" else set()
    )
    assert not (others - own) & described


@pytest.mark.parametrize("verb", [*QUESTIONS, "estimate", "plan"])
def test_an_answer_has_tables_in_every_form(ask, verb):
    words = {"estimate": ASK, "plan": PLAN}.get(verb) or example(verb)
    status, whole, _ = ask(*words)
    for form in ("csv", "markdown", "json"):
        again, out, err = ask(*words, "--format", form)
        assert again == status and out and not err.startswith("ironlaw: "), (form, err)
        if form == "json":
            assert json.loads(out)["schema_version"]
    again, out, _ = ask(*words, "--short")
    assert again == status and len(out.splitlines()) <= 9
    assert out.splitlines()[0] == whole.splitlines()[0]
    assert ask(*words, "--quiet") == (status, "", "")


def test_a_table_of_an_estimate_has_the_numbers_of_its_json(ask):
    data = json.loads(ask(*ASK, "--json")[1])
    (row,) = csv.DictReader(io.StringIO(ask(*ASK, "--format", "csv:estimates")[1]))
    assert float(row["step_seconds [s]"]) == data["step"]["seconds"]
    assert float(row["device_bytes [B]"]) == data["memory"]["device"]
    assert (row["tp"], row["fits"]) == (str(data["plan"]["tp"]), "yes")
    times = list(csv.DictReader(io.StringIO(ask(*ASK, "--format", "csv:time")[1])))
    assert sum(float(r["seconds [s]"]) for r in times if r["level"] == "0") == pytest.approx(data["step"]["seconds"])


def test_rows_are_printed_as_a_table_too(ask, tmp_path):
    path = tmp_path / "runs.csv"
    path.write_text("id,model,on,gpus\na,llama-3-8b,h100-sxm,8\nb,llama-3-8b,h999,8\n")
    status, out, _ = ask("estimate", "--rows", path, "--format", "csv")
    first, second = csv.DictReader(io.StringIO(out))
    assert status == 2 and first["fits"] == "yes" and first["error"] == "" and "h999" in second["error"]


def test_a_short_answer_has_the_money_and_counts_warnings(ask):
    out = ask(*ASK, "--tokens", "1T", "--short")[1]
    assert "run of 1 T tokens: " in out and " USD" in out and "with failures" in out
    status, out, _ = ask("estimate", "gpt-3-175b", "--on", "rtx-4090", "--gpus", "8", "--short")
    assert status == 1 and "does not fit" in out and "warning: " in out
    assert ask(*PLAN, "--short")[1].count("\n") < 8


def test_quiet_still_reports_errors_and_keeps_the_status(ask):
    assert ask("estimate", "gpt-3-175b", "--on", "rtx-4090", "--gpus", "8", "--quiet") == (1, "", "")
    status, out, err = ask("estimate", "gpt-9", "--on", "rtx-4090", "--gpus", "8", "--quiet")
    assert (status, out) == (2, "") and "gpt-9" in err
    assert ask(*ASK, "--quiet", "--json")[0] == 2
    status, out, err = ask(*PLAN, "--ep", "4", "--quiet")  # a dense model has no experts
    assert (status, out) == (2, "") and err == "ironlaw: no plan of this question is legal: leave out --quiet to read why\n"


@pytest.mark.parametrize("more", [("--json",), ("--format", "csv"), ("--explain",)])
def test_short_goes_with_the_page_alone(ask, more):
    status, out, err = ask(*ASK, "--short", *more)
    assert status == 2 and "--short" in err and (out == "" or json.loads(out)["error"]["option"] == "short")


def test_a_plan_explains_a_term_of_the_best_plan(ask):
    status, out, _ = ask(*PLAN, "--explain", "optimizer")
    assert status == 0 and out.startswith("optimizer")
    status, out, err = ask(*PLAN, "--explain", "banana")
    assert (status, out) == (2, "") and "unknown term 'banana'" in err
    assert "formula" not in ask(*PLAN, "--json")[1] and '"sources"' in ask(*PLAN, "--json", "--explain")[1]


@pytest.mark.parametrize("verb", [*QUESTIONS, "estimate"])
def test_the_terms_of_an_answer_are_listed(ask, verb):
    words = ASK if verb == "estimate" else example(verb)
    names = ask(*words, "--explain", "list")[1].splitlines()
    if names != [""]:
        assert ask(*words, "--explain", names[0])[0] == ask(*words)[0]
    assert verb == "diff" or len(names) == len(set(names))


def switches():
    return [
        (words, param) for words in LEAVES for param in leaf(words).params if isinstance(param, click.Option) and param.metavar == SWITCH
    ]


@pytest.mark.parametrize(("words", "param"), switches(), ids=lambda v: " ".join(v) if isinstance(v, tuple) else v.opts[0])
def test_a_switch_may_stand_alone(words, param):
    name, command = param.opts[0], leaf(words)
    assert read_words([name], command)[0] == [f"{name}=on"]
    assert read_words([name, "llama-3-8b"], command)[0] == [f"{name}=on", "llama-3-8b"]
    assert read_words([name, "off", "x"], command)[0] == [name, "off", "x"]
    assert read_words([f"{name}=off"], command)[0] == [f"{name}=off"]
    assert read_words([f"--no-{name[2:]}"], command)[0] == [f"{name}=off"]


def test_the_value_of_an_option_is_not_taken_for_a_switch():
    command = command_of("estimate")
    assert read_words(["--node", "--sp", "--tp", "2"], command)[0] == ["--node", "--sp", "--tp", "2"]
    assert read_words(["--explain", "--sp"], command)[0] == ["--explain", "--sp=on"]
    assert read_words(["--", "--sp"], command)[0] == ["--", "--sp"]


def test_a_switch_alone_is_on(ask):
    alone, on, off = (
        ask("roofline", "--gemm", "1,4096,4096", "--on", "h100-sxm", *words)[1] for words in (["--plot"], ["--plot", "on"], [])
    )
    assert alone == on != off


@pytest.mark.parametrize("kind", ["models", "framework", "terms", "options"])
def test_the_catalogue_lists_a_kind_with_what_each_is(ask, kind):
    status, out, _ = ask("catalog", "list", kind)
    head, *lines = out.splitlines()
    assert status == 0 and head == f"{head.split()[0]} ({len(lines)})"
    names = next(iter(json.loads(ask("catalog", "list", kind, "--json")[1]).values()))
    assert names == [line.split("  ")[1] for line in lines]
    assert len(list(csv.DictReader(io.StringIO(ask("catalog", "list", kind, "--format", "csv")[1])))) == len(names)


def test_the_list_of_frameworks_tells_them_apart(ask):
    out = ask("catalog", "list", "frameworks")[1]
    assert "torchtitan, eager" in out and "torchtitan with torch.compile" in out


def test_the_list_of_sites_has_other_names_as_people_write_them(ask):
    (line,) = [line for line in ask("catalog", "list", "sites")[1].splitlines() if line.startswith("  ashburn ")]
    assert "US East (N. Virginia)" in line and "us-east-1" in line and "(n.-" not in line


def test_an_estimate_takes_lists_and_ranges_of_counts(ask):
    status, out, _ = ask(*ASK[:5], "8..32", "--format", "csv")
    rows = list(csv.DictReader(io.StringIO(out)))
    assert status == 0 and [row["gpus"] for row in rows] == ["8", "16", "32"]
    assert len(ask(*ASK, "--tp", "1,2,4")[1].splitlines()) == 3
    status, out, err = ask(*ASK[:5], "8,16", "--tp", "1,2,4")
    assert (status, out) == (2, "") and "columns must have one length" in err
    for words in (["--gpus", "16..8"], ["--gpus", "1..2..3"], ["--gpus", "8,,16"]):
        assert ask(*ASK[:4], *words)[0] == 2


@pytest.mark.parametrize("verb", ["money", "optimize", "data"])
def test_a_verb_for_one_count_says_who_takes_several(ask, verb):
    status, out, err = ask(verb, "llama-3-8b", "--on", "h100-sxm", "--gpus", "8,16", "--tokens", "1T")
    assert (status, out) == (2, "") and "estimate, plan and sweep take several" in err


def test_ranges_are_the_same_in_every_verb_with_several_counts(ask):
    for verb, more in (("goodput", ["--work", "54days", "--parameters", "405B"]), ("sweep", ["llama-3-8b", "--tokens", "1T"])):
        by_range = ask(verb, *more, "--on", "h100-sxm", "--gpus", "8..32", "--format", "csv")
        assert by_range == ask(verb, *more, "--on", "h100-sxm", "--gpus", "8,16,32", "--format", "csv")
        assert by_range[0] == 0
