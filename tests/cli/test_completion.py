"""Completion in a shell: verbs, options, names of the catalogue; light, because it runs at every key."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
from click.shell_completion import ShellComplete, get_completion_class

from ironlaw.catalog import load
from ironlaw.cli.completion import SHELLS
from ironlaw.cli.main import VERBS, cli


def completions(*words):
    *before, last = words
    return [item.value for item in ShellComplete(cli, {}, "ironlaw", "_IRONLAW_COMPLETE").get_completions(list(before), last)]


def test_verbs_are_completed():
    assert set(VERBS) == set(completions(""))
    assert completions("est") == ["estimate"]
    assert set(completions("runs", "")) >= {"list", "show", "gate"}


def test_options_are_completed():
    assert completions("estimate", "llama-3-8b", "--global-b") == ["--global-batch-size", "--global-batch-tokens"]
    assert "--format" in completions("money", "--f") and "--help-all" in completions("runs", "list", "--h")


@pytest.mark.parametrize(
    ("words", "kind"),
    [
        (("estimate", ""), "models"), (("plan", ""), "models"), (("compare", ""), "models"),
        (("estimate", "llama-3-8b", "--on", ""), "accelerators"), (("plan", "llama-3-8b", "--on", ""), "accelerators"),
        (("estimate", "--node", ""), "nodes"), (("money", "--fabric", ""), "fabrics"), (("solve", "--framework", ""), "frameworks"),
        (("estimate", "--grid", ""), "grids"), (("sites", "--sites", ""), "sites"),
    ],
    ids=str,
)  # fmt: skip
def test_names_of_the_catalogue_are_completed(words, kind):
    assert load.names(kind) and completions(*words) == load.names(kind)


def test_choices_lists_and_switches_are_completed():
    assert completions("estimate", "--precision", "fp8") == ["fp8", "fp8-block", "fp8-current", "fp8-delayed", "fp8-e4m3", "fp8-row"]
    assert completions("estimate", "--sp", "") == ["on", "off"]
    assert completions("compare", "x", "--on", "h100-sxm,h200-s") == ["h100-sxm,h200-sxm"]
    assert completions("money", "--format", "c") == ["csv"]
    assert completions("catalog", "list", "fram") == ["frameworks"]
    assert completions("catalog", "show", "dgx-h1") == ["dgx-h100"]


@pytest.mark.parametrize("shell", SHELLS)
def test_the_script_of_a_shell_calls_back(ask, shell):
    status, out, err = ask("completion", shell)
    assert (status, err) == (0, "")
    assert f"_IRONLAW_COMPLETE={shell}_complete" in out
    assert get_completion_class(shell) is not None
    assert ask("completion", "tcsh")[0] == 2


def test_a_shell_gets_completions_without_numpy():
    code = "import sys; from ironlaw.cli.main import main; status = main(); assert 'numpy' not in sys.modules, 'numpy'; sys.exit(status)"
    for asked, found in ((["estimate", "--on", "h100-s"], "h100-sxm"), (["plan", "llama-3-8"], "llama-3-8b")):
        words = ["ironlaw", *asked]
        environment = {**os.environ, "_IRONLAW_COMPLETE": "bash_complete", "COMP_WORDS": " ".join(words), "COMP_CWORD": str(len(words) - 1)}
        done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=False)
        assert (done.returncode, done.stderr) == (0, "")
        assert f"plain,{found}" in done.stdout
