"""The verbs that ask a question: found in the program, so that a new verb is tested without being added to a list."""

from __future__ import annotations

import importlib
import shlex

import click

from ironlaw.cli.main import VERBS, command_of

MODULES = {verb: importlib.import_module(f"ironlaw.{module}") for verb, (module, _) in VERBS.items()}
QUESTIONS = [verb for verb, module in MODULES.items() if hasattr(module, "EXAMPLES") and not hasattr(module, "ARGUMENTS")]
ACTIONS = {verb: list(command.commands) for verb in VERBS if isinstance(command := command_of(verb), click.Group)}  # of runs, catalog, ...
GENERAL = ("model", "as_json", "catalog", "explain", "how", "short", "quiet", "help_all")  # options that every question has


def examples(verb: str) -> list[list[str]]:
    """The examples of the verb's help, as words from the verb on."""
    return [shlex.split(line)[1:] for line in MODULES[verb].EXAMPLES.strip().splitlines()]


def example(verb: str) -> list[str]:
    """The first example of the verb's help, as words from the verb on."""
    return examples(verb)[0]


def options(verb: str) -> list[str]:
    """The names of the verb's own options."""
    return [option.name for option in command_of(verb).params if option.name not in GENERAL and not getattr(option, "hidden", False)]
