"""Flags of a command: made from the options of a question, and the words of a command line before click reads them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import click

from ironlaw.question.options import Option

SWITCH = "on|off"  # metavar of an option that is on where it stands alone
_SWITCH_WORDS = ("on", "off", "yes", "no", "true", "false", "1", "0", "y", "n")


def flag_of(name: str, option: Option) -> click.Option:
    """The flag of one option: ``--global-batch-size`` of ``global_batch_size``."""
    return click.Option([f"--{name.replace('_', '-')}", name], metavar=option.metavar, help=option.help)


def flags_of(options: Mapping[str, Option], without: Sequence[str] = ("model",)) -> list[click.Parameter]:
    """A flag for every option but the arguments in ``without``."""
    return [flag_of(name, option) for name, option in options.items() if name not in without]


def explain_flag() -> click.Option:
    """``--explain [TERM]``."""
    told = "formula, inputs and sources of TERM (default: every term; list: their names)"
    return click.Option(["--explain"], is_flag=False, flag_value="all", metavar="[TERM]", help=told)


def form_flags() -> list[click.Parameter]:
    """The flags that choose the form of an answer, the same in every verb."""
    return [
        click.Option(["--json", "as_json"], is_flag=True, help="print JSON"),
        click.Option(
            ["--format", "how"],
            metavar="HOW",
            help="table, json, csv or markdown; csv:NAME prints one table, by its JSON key (default: table)",
        ),
        click.Option(["--short"], is_flag=True, help="print only the first lines of the page"),
    ]


def catalog_flag() -> click.Option:
    """``--catalog DIR``."""
    return click.Option(["--catalog"], multiple=True, metavar="DIR", help="folder of your records, which override the shipped ones")


def complete_switches(words: Sequence[str], command: click.Command) -> list[str]:
    """The words with ``on`` behind every switch that stands alone: ``--plot`` is ``--plot=on``, ``--no-plot`` is ``--plot=off``."""
    flags = {opt: param for param in command.params if isinstance(param, click.Option) for opt in param.opts}
    left, complete = list(words), []
    while left:
        word = left.pop(0)
        if word == "--":
            return [*complete, word, *left]
        name, equals, _ = word.partition("=")
        opposite = flags.get(f"--{name[5:]}") if name.startswith("--no-") and name not in flags else None
        if opposite is not None and opposite.metavar == SWITCH and not equals:
            complete.append(f"--{name[5:]}=off")
            continue
        complete.append(word)
        param = flags.get(name)
        if param is None or equals:
            continue
        if param.metavar == SWITCH:
            if left and left[0].strip().lower() in _SWITCH_WORDS:
                complete.append(left.pop(0))
            else:
                complete[-1] = f"{name}=on"
        elif takes_a_word(param) and left:
            complete.append(left.pop(0))
    return complete


def takes_a_word(param: click.Option) -> bool:
    """True for a flag whose value is the next word; the next word of ``--explain [TERM]`` may be another flag."""
    return not param.is_flag and not param.count and not getattr(param, "_flag_needs_value", False)
