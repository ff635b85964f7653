"""Flags of a command: made from the options of a question, and the words of a command line before click reads them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import click

from ironlaw.cli.cite import cite_flag
from ironlaw.cli.complete import complete_forms, completer_of
from ironlaw.errors import QuestionError, UnknownOptionError
from ironlaw.question.options import Option, why_left_out
from ironlaw.question.synonyms import is_synonym, stands_alone

SWITCH = "on|off"  # metavar of an option that is on where it stands alone
_SWITCH_WORDS = ("on", "off", "yes", "no", "true", "false", "1", "0", "y", "n")


def flag_of(name: str, option: Option, hidden: bool = False) -> click.Option:
    """The flag of one option: ``--global-batch-size`` of ``global_batch_size``."""
    flags = [f"--{name.replace('_', '-')}", name]
    completer = completer_of(name, option)
    return click.Option(flags, metavar=option.metavar, help=option.help, shell_complete=completer, hidden=hidden)


def flags_of(options: Mapping[str, Option], without: Sequence[str] = ("model",), hidden: bool = False) -> list[click.Parameter]:
    """A flag for every option but the arguments in ``without``."""
    return [flag_of(name, option, hidden) for name, option in options.items() if name not in without]


def explain_flag() -> click.Option:
    """``--explain [TERM]``."""
    told = "formula, inputs and sources of TERM (default: every term; list: their names)"
    return click.Option(["--explain"], is_flag=False, flag_value="all", metavar="[TERM]", help=told)


def form_flags(cite: bool = False) -> list[click.Parameter]:
    """The flags that choose the form of an answer, the same in every verb; ``cite``: with that of its sources."""
    return [
        click.Option(["--json", "as_json"], is_flag=True, help="print JSON"),
        click.Option(
            ["--format", "how"],
            metavar="HOW",
            shell_complete=complete_forms,
            help="table, json, csv or markdown; csv:NAME prints one table, by its JSON key (default: table)",
        ),
        click.Option(["--short"], is_flag=True, help="print only the first lines of the page"),
        click.Option(["--html"], metavar="FILE", help="write the answer as a report: one HTML file, which opens without a network"),
        *([cite_flag()] if cite else []),
    ]


def catalog_flag() -> click.Option:
    """``--catalog DIR``."""
    return click.Option(["--catalog"], multiple=True, metavar="DIR", help="folder of your records, which override the shipped ones")


def read_words(words: Sequence[str], command: click.Command) -> tuple[list[str], dict[str, str]]:
    """The words for click, and the options in the words of other tools.

    A switch that stands alone gets its value: ``--plot`` is ``--plot=on``, ``--no-plot`` is ``--plot=off``. What ``question/synonyms``
    knows, such as ``--tensor-model-parallel-size 8``, is taken out.
    """
    flags = {opt: param for param in command.params if isinstance(param, click.Option) for opt in param.opts}
    known = {param.name or "" for param in command.params}
    left, complete, others = list(words), list[str](), dict[str, str]()
    while left:
        word = left.pop(0)
        if word == "--":
            return [*complete, word, *left], others
        name, equals, value = word.partition("=")
        param, plain = flags.get(name), name[2:].replace("-", "_")
        if param is None and name.startswith("--") and is_synonym(plain, known):
            if not equals:
                value = "on" if stands_alone(plain) and not (left and _is_value(left[0])) else left.pop(0) if left else ""
            if plain in others and others[plain] != value:
                raise QuestionError(f"{name} is given twice: give it once")
            others[plain] = value
            continue
        if param is None and name.startswith("--") and (why := why_left_out(plain, command.name or "")):
            raise UnknownOptionError(f"{command.name} has no {name}: {why}; leave it out", option=plain)
        opposite = flags.get(f"--{name[5:]}") if param is None and name.startswith("--no-") else None
        if opposite is not None and opposite.metavar == SWITCH and not equals:
            complete.append(f"--{name[5:]}=off")
            continue
        complete.append(word)
        if param is None or equals:
            continue
        if param.metavar == SWITCH:
            if left and left[0].strip().lower() in _SWITCH_WORDS:
                complete.append(left.pop(0))
            else:
                complete[-1] = f"{name}=on"
        elif takes_a_word(param) and left:
            complete.append(left.pop(0))
    return complete, others


def _is_value(word: str) -> bool:
    """Whether a word behind a switch of another tool is its value: on, off, or a way to recompute."""
    return word.strip().lower() in _SWITCH_WORDS or word.partition(":")[0] in ("none", "full", "selective", "every", "share")


def takes_a_word(param: click.Option) -> bool:
    """True for a flag whose value is the next word; the next word of ``--explain [TERM]`` may be another flag."""
    return not param.is_flag and not param.count and not getattr(param, "_flag_needs_value", False)
