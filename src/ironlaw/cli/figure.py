"""``ironlaw figure``: draw an answer, as a picture, as the specification of a picture, or as the data of one."""

from __future__ import annotations

import contextlib
import io
from collections.abc import Sequence
from typing import Any

import click

from ironlaw.cli.complete import complete_figures
from ironlaw.cli.help import AnswerCommand
from ironlaw.cli.output import json_text, print_line, print_note, print_text
from ironlaw.errors import MissingOptionError, QuestionError, UnknownOptionError
from ironlaw.files import check_output, is_file, open_file, parse_json, read_saved, write_file
from ironlaw.report.saved import drawn

LARGEST = 1 << 26  # bytes of a saved answer
_HEAD = 4096  # bytes in which a saved answer says that it is one

_EXAMPLES = """
\b
Examples:
  ironlaw figure waterfall llama-3-70b --on h100-sxm --gpus 512 -o waterfall.svg
  ironlaw figure pareto-memory llama-3-70b --on h100-sxm --gpus 512 -o plans.png --theme dark
  ironlaw figure roofline --gemm 256,8192,57344 --batch 1,4,16 --on h100-sxm -o roofline.pdf
  ironlaw figure timeline trace.json.gz -o timeline.json      (a Vega-Lite specification)
  ironlaw figure memory-bar answer.json -o memory.csv         (a saved answer; the data of the figure)
  ironlaw figure --list
"""


class FigureCommand(AnswerCommand):
    """A command that takes its own options out of the words, and leaves the question to the verb that answers it."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Read the options of the figure; all other words are its name and the question."""
        options = {opt: param for param in self.get_params(ctx) if isinstance(param, click.Option) for opt in param.opts}
        own, question, left = [], [], list(args)
        while left:
            word = left.pop(0)
            option = options.get(word.partition("=")[0])
            if option is None:
                question.append(word)
                continue
            own.append(word)
            if not option.is_flag and "=" not in word and left:
                own.append(left.pop(0))
        return click.Command.parse_args(self, ctx, [*own, "--", *question])


@click.command("figure", cls=FigureCommand, epilog=_EXAMPLES)
@click.argument("words", nargs=-1, metavar="NAME [QUESTION|ANSWER]...", shell_complete=complete_figures)
@click.option("-o", "--output", metavar="FILE", help="write to this file: .svg, .png or .pdf (needs ironlaw[figures]), .json, .csv")
@click.option("--theme", metavar="light|dark", default="light", show_default=True, help="colours of the figure")
@click.option("--list", "listed", is_flag=True, help="list the figures, what each answers, and its verb")
@click.option("--json", "as_json", is_flag=True, help="print the specification in Vega-Lite")
def command(words: tuple[str, ...], output: str | None, theme: str, listed: bool, as_json: bool) -> int:
    """Draw the figure NAME of a QUESTION: the words of the verb that answers it, or a file with a saved answer.

    Without --output it prints what the figure says, and its data as a table.
    """
    from ironlaw.figures import convert, table
    from ironlaw.figures import theme as themes

    if listed:
        return _list(as_json)
    if not words:
        raise MissingOptionError("missing NAME of a figure; ironlaw figure --list has them", option="name")
    if words[0].startswith("-"):
        raise UnknownOptionError(f"No such option: {words[0]}: the NAME of a figure comes first", option=words[0].lstrip("-"))
    found = table.figure_of(words[0])
    themes.tokens(theme)
    form = None
    if output is not None:
        form = convert.format_of(output)
        check_output(output, "--output")
        if form in convert.PICTURES:
            convert.converter()
    answer = answer_of(found, words[1:])
    saved = words[1] if is_saved(words[1:]) else None
    spec = table.draw(words[0], answer) if saved is None else drawn(saved, lambda: table.draw(words[0], answer))
    if output is not None and form is not None:
        write_file(output, convert.file_of(spec, form, theme), "--output")
        print_note(f"the figure is in {output}")
    if as_json:
        print_text(json_text(themes.dressed(spec, theme)) + "\n")
    elif output is None:
        _print(spec)
    return 0


def answer_of(found: Any, words: Sequence[str]) -> Any:
    """The plain data of an answer: of a saved one, or of the verb that the figure draws, asked with these words."""
    if is_saved(words):
        return read_saved(words[0], LARGEST)
    from ironlaw.cli.main import command_of

    asked = list(words) or (["predictions"] if found.verb == "validate" else [])
    more = [] if found.words and found.words[0] in asked else found.words
    text = io.StringIO()
    with contextlib.redirect_stdout(text):
        arguments = [*more, *asked, "--json"]
        status = command_of(found.verb).main(
            arguments, prog_name=f"ironlaw {found.verb}", standalone_mode=False, obj=(found.verb, *arguments)
        )
    answer = parse_json(text.getvalue()) if text.getvalue().strip() else None
    if not answer or status == 2:
        raise QuestionError(f"`ironlaw {found.verb}` has no answer to this question: ask it alone to read why")
    return answer


def is_saved(words: Sequence[str]) -> bool:
    """Whether a question is a file with a saved answer, and no trace, model or question: it says so at its beginning."""
    if len(words) != 1 or not is_file(words[0]):
        return False
    with open_file(words[0]) as file:
        head = file.read(_HEAD).lstrip()
    return head.startswith(b"<") or b'"schema_version"' in head


def _list(as_json: bool) -> int:
    """Print the figures."""
    from ironlaw.figures.table import FIGURES

    rows = [
        {"name": name, "asks": one.asks, "verb": one.verb, "example": f"ironlaw figure {name} {one.example}".strip()}
        for name, one in FIGURES.items()
    ]
    if as_json:
        print_text(json_text(rows) + "\n")
        return 0
    for row in rows:
        print_line(f"{row['name']:<20}{row['verb']:<10}{row['asks']}")
    return 0


def _print(spec: Any) -> None:
    """What a figure says, and its data as a table."""
    from ironlaw.figures.table import data_of
    from ironlaw.report.answer import answer_markdown
    from ironlaw.report.tables import data_answer

    heading = spec["title"]
    print_line(f"{heading['text']}: {heading['subtitle']}")
    print_line(spec["description"])
    print_line("")
    print_text(answer_markdown(data_answer(heading["text"], {"rows": data_of(spec)}, {"rows": "Data"}), "rows") + "\n")
