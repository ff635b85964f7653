"""The verbs as Python functions: signature, help, completion, positional use, errors."""

from __future__ import annotations

import importlib
import inspect
import pickle
import pydoc
import re
import subprocess
import sys
from pathlib import Path

import pytest

import ironlaw
from ironlaw import IronlawError as Error
from ironlaw import interface
from ironlaw.cli.main import VERBS, main
from ironlaw.earlier import VERBS as SYNONYMS
from ironlaw.question.options import OPTIONS
from verbs import MODULES

FUNCTIONS = interface.names()


def test_every_verb_that_answers_a_question_is_a_function():
    questions = {verb for verb, (module, _) in VERBS.items() if module.startswith("questions.")}
    assert set(FUNCTIONS) == {"estimate", "plan", "diagnose", *questions, *SYNONYMS}
    assert set(FUNCTIONS) | {"IronlawError", "__version__"} == set(dir(ironlaw)) == set(ironlaw.__all__)


def test_a_new_verb_is_a_function_without_a_line_of_code(monkeypatch):
    monkeypatch.setitem(VERBS, "rehearse", ("questions.scaling.options", "Rehearse."))
    assert "rehearse" in interface.names() and "rehearse" in dir(ironlaw)


def test_the_signature_of_estimate_lists_every_option_with_none_as_default():
    parameters = inspect.signature(ironlaw.estimate).parameters
    assert set(parameters) == {*OPTIONS, "catalog"}
    assert all(p.default is None for p in parameters.values())
    assert all(p.annotation is not inspect.Parameter.empty for p in parameters.values())
    assert [n for n, p in parameters.items() if p.kind is inspect.Parameter.POSITIONAL_OR_KEYWORD] == ["model", "on", "gpus"]


@pytest.mark.parametrize("verb", [verb for verb in FUNCTIONS if hasattr(MODULES.get(verb), "EXAMPLES")])
def test_the_signature_of_a_question_has_the_options_of_its_verb(verb):
    assert set(inspect.signature(getattr(ironlaw, verb)).parameters) == {*MODULES[verb].OPTIONS, "catalog"}


def test_no_option_of_an_estimate_takes_just_anything():
    assert [a.name for a in interface.arguments("estimate") if a.annotation == "Any"] == []


@pytest.mark.parametrize("name", FUNCTIONS)
def test_help_describes_every_argument(name):
    text = pydoc.render_doc(getattr(ironlaw, name), renderer=pydoc.plaintext)
    assert text.splitlines()[2].startswith(f"{name}(")  # the arguments, as of any function
    assert "PACKAGE CONTENTS" not in text
    for argument in interface.arguments(name):
        assert re.search(rf"^      {argument.name}: ", text, re.MULTILINE), argument.name
    assert not re.search(r"(?<!ironlaw)(?<![\w`])--[a-z]", re.sub(r"ironlaw [^\n]*", "", text)), (
        "a flag of the command line in help of Python"
    )


def test_import_signature_and_help_load_no_numpy():
    code = "import sys, ironlaw; assert not {'numpy', 'click', 'inspect'} & {*sys.modules}; import inspect; dir(ironlaw)\n"
    code += "for name in ironlaw.__all__[2:]: inspect.signature(getattr(ironlaw, name)); getattr(ironlaw, name).__doc__\n"
    code += "print(sorted(sys.modules))"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert "'numpy'" not in loaded


def test_a_module_of_a_function_s_name_is_found_through_the_function():
    for name in ironlaw.MODULES:
        importlib.import_module(f"ironlaw.{name}")
        assert isinstance(getattr(ironlaw, name), interface.Verb)
    from ironlaw.plan import Plan

    assert ironlaw.plan.Plan is Plan
    assert ironlaw.search.misses is importlib.import_module("ironlaw.search.misses")


def test_modules_says_which_functions_share_their_name_with_a_module():
    folder = Path(ironlaw.__file__).parent
    assert {n for n in FUNCTIONS if (folder / n).is_dir() or (folder / f"{n}.py").is_file()} == set(ironlaw.MODULES)


def test_a_function_survives_pickling_for_a_pool_of_processes():
    assert pickle.loads(pickle.dumps(ironlaw.money)) is ironlaw.money


def test_model_accelerator_and_count_need_no_name():
    assert ironlaw.estimate("llama-3-8b", "h100-sxm", 8).step_seconds == ironlaw.estimate("llama-3-8b", on="h100-sxm", gpus=8).step_seconds


def test_plan_and_search_are_one_function():
    best = [
        find("llama-3-8b", "h100-sxm", 8, global_batch_size=64, fix="cp=1,tp=2,pp=1").first(1)[0].values
        for find in (ironlaw.plan, ironlaw.search)
    ]
    assert best[0] == best[1]


def test_options_of_an_estimate_are_arguments_of_diagnose():
    log = Path(__file__).parents[1] / "data" / "measured"
    trace = next(log.glob("v100_resnet50_nw0.json.gz"))
    assert ironlaw.diagnose(trace, on="v100-sxm-32gb").verdict.roof == "data"


def test_a_throughput_without_a_file_is_diagnosed_as_on_the_command_line():
    """Half of the predicted throughput is half the speed."""
    asked = {"model": "llama-3-8b", "on": "h100-sxm", "gpus": 8, "tp": 2, "pp": 1, "micro_batch_size": 1, "global_batch_size": 64}
    predicted = float(ironlaw.estimate(**asked).to_dict()["throughput"]["tokens_per_second"])
    run = ironlaw.diagnose(tokens_per_second=predicted / 2.0, **asked).to_dict()["comparison"]["measured_run"]
    assert run["tokens_per_second"] == pytest.approx(predicted / 2.0) and run["predicted_tokens_per_second"] == pytest.approx(predicted)


@pytest.mark.parametrize(
    ("ask", "kind", "text"),
    [
        (lambda: ironlaw.estimate("llama-3-8b", "h100", 8, 2), TypeError, "takes 3 arguments without a name (model, on, gpus), got 4"),
        (lambda: ironlaw.estimate("llama-3-8b", model="gpt-2"), TypeError, "estimate() got two values of 'model'"),
        (lambda: ironlaw.estimate("llama-3-8b", "h100", 8, vocab_parallel_sizes=8), Error, "'vocab_parallel_sizes'; nearest: "),
        (lambda: ironlaw.money("llama-3-8b", "h100", 8, vocab_parallel_sizes=8), Error, "'vocab_parallel_sizes'; nearest: "),
        (lambda: ironlaw.estimate("llama-3-8b", "h100", "abc"), Error, "gpus is 'abc', must be a whole number"),
        (lambda: ironlaw.estimate("llama-3-8b", "h100", 8.5), Error, "gpus is 8.5, must be a whole number"),
        (lambda: ironlaw.estimate("llama-3-8b", "h100", {}), Error, "gpus is '{}', must be a whole number"),
        (lambda: ironlaw.estimate("llama-3-8b", ["h100"], 8), Error, "on is ['h100'], must be a name"),
        (lambda: ironlaw.estimate(3, "h100", 8), Error, "model is 3, must be a name"),
        (lambda: ironlaw.estimate("llama-3-8b", "h100"), Error, "missing argument gpus"),
        (lambda: ironlaw.estimate("llama-3-8b", "h100", 8, flash_attention=3), Error, "flash_attention is 3, must be on or off"),
        (lambda: ironlaw.estimate("llama-3-8b", "h100", 8, mttf=3), Error, "mttf is 3, which has no unit"),
        (lambda: ironlaw.plan("llama-3-8b", "h100"), Error, "missing argument gpus"),
        (ironlaw.diagnose, Error, "missing argument paths"),
        (lambda: ironlaw.diagnose("x", lables="y"), Error, "unknown option 'lables'"),
        (lambda: ironlaw.estimat, AttributeError, "nearest: estimate"),
    ],
)  # fmt: skip
def test_a_wrong_call_is_one_line_in_the_words_of_python(ask, kind, text):
    with pytest.raises(kind) as caught:
        ask()
    assert text in str(caught.value) and "\n" not in str(caught.value) and "--" not in str(caught.value)


def test_a_command_that_a_message_quotes_keeps_its_flags():
    quoted = "unknown grid 'x' (ironlaw plan --top 3)"
    assert interface.in_python(quoted) == quoted


def test_the_stub_is_what_the_tables_of_options_give():
    stub = importlib.util.spec_from_file_location("stub", Path(__file__).parents[2] / "tools" / "stub.py")
    module = importlib.util.module_from_spec(stub)
    stub.loader.exec_module(module)
    for path, text in module.STUBS.items():
        assert path.read_text(encoding="utf-8") == text(), "stale: run python tools/stub.py"


def test_an_earlier_name_of_a_verb_is_the_verb(capsys):
    words = ("--gpu-utilization", "45%")
    assert main(["optimize", *words]) == 0
    new = capsys.readouterr().out
    assert main(["lessons", *words]) == 0
    assert capsys.readouterr().out == new
    assert ironlaw.lessons(gpu_utilization="45%").headline == ironlaw.optimize(gpu_utilization="45%").headline
    assert "lessons" not in new and main(["--help"]) == 0
    assert "lessons" not in capsys.readouterr().out
