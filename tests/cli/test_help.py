"""The help of every verb: options by subject, each once."""

from __future__ import annotations

import re

import click
import pytest

from ironlaw.cli.help import GroupedCommand
from ironlaw.cli.main import command_of
from ironlaw.question.options import GROUPS, OPTIONS
from verbs import MODULES, QUESTIONS

GROUPED = [verb for verb in MODULES if isinstance(command_of(verb), GroupedCommand)]


def sections_of(text):
    """The flags of a help by heading."""
    found, heading = {}, None
    for line in text.splitlines():
        if match := re.match(r"^([A-Z][\w -]*):$", line):
            heading = found.setdefault(match[1], [])
        elif heading is not None and (match := re.match(r"^  (MODEL|-h, --help|--[\w-]+)\b", line)):
            heading.append(match[1])
    return found


def test_every_option_of_an_estimate_is_in_one_group():
    grouped = [name for names in GROUPS.values() for name in names]
    assert len(grouped) == len(set(grouped))
    assert set(grouped) == set(OPTIONS)


def test_all_verbs_that_ask_a_question_are_grouped():
    assert {*QUESTIONS, "estimate", "plan", "diagnose"} <= set(GROUPED)


@pytest.mark.parametrize("verb", [verb for verb in GROUPED if verb not in ("roofline", "textbook")])  # which need no number of accelerators
def test_the_short_help_shows_what_every_question_needs(ask, verb):
    names = {param.name for param in command_of(verb).params if not getattr(param, "hidden", False)}
    shown = {flag for flags in sections_of(ask(verb, "--help")[1]).values() for flag in flags}
    assert {f"--{name.replace('_', '-')}" for name in ("on", "gpus", "deadline", "framework") if name in names} <= shown


@pytest.mark.parametrize("verb", GROUPED)
def test_every_option_is_printed_once_under_a_heading(ask, verb):
    shown = [flag for flags in sections_of(ask(verb, "--help-all")[1]).values() for flag in flags]
    expected = [opt for param in command_of(verb).params if isinstance(param, click.Option) and not param.hidden for opt in param.opts[:1]]
    assert sorted(flag for flag in shown if flag not in ("MODEL", "-h, --help")) == sorted(expected)
    assert shown[-1] == "-h, --help"


@pytest.mark.parametrize("verb", ["estimate", "plan", "money", "goodput", "optimize", "data"])
def test_the_options_of_an_estimate_are_under_the_same_headings_everywhere(ask, verb):
    shown = sections_of(ask(verb, "--help-all")[1])
    for heading, names in GROUPS.items():
        flags = [f"--{name.replace('_', '-')}" for name in names if name != "model"]
        assert [flag for flag in shown.get(heading, []) if flag in flags] == [
            flag for flag in flags if any(flag in s for s in shown.values())
        ]


def test_headings_of_a_verb_come_before_those_of_an_estimate(ask):
    assert list(sections_of(ask("estimate", "--help-all")[1]))[:5] == ["Model", "Input", "Machine", "Network", "Job"]
    assert list(sections_of(ask("compare", "--help-all")[1]))[:2] == ["Model", "Compare"]
    shown = sections_of(ask("roofline", "--help-all")[1])
    assert shown["Operator"][:2] == ["--gemm", "--attention"]
    assert "--optimizer" in shown["Operator"]  # an operator here, no choice of an estimate
