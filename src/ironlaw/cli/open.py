"""``ironlaw open FILE``: a saved answer on the page, or as a report."""

from __future__ import annotations

from datetime import date
from pathlib import Path
from typing import Any

import click

from ironlaw.cli.help import AnswerCommand
from ironlaw.cli.output import print_note
from ironlaw.cli.serve import PORT, read_port, serve
from ironlaw.earlier import check_version, rename_rates
from ironlaw.errors import InputError, import_extra
from ironlaw.files import check_output, read_saved, write_file

_EXAMPLES = """
\b
Examples:
  ironlaw open report.html
  ironlaw open answer.json --browser
  ironlaw open answer.json --html report.html      (writes a report, serves nothing)
"""


@click.command("open", cls=AnswerCommand, epilog=_EXAMPLES)
@click.argument("file")
@click.option("--port", metavar="PORT", default=str(PORT), show_default=True, help="port on 127.0.0.1; 0 takes a free one")
@click.option("--browser", is_flag=True, help="open the address in the browser of this machine, too")
@click.option("--html", metavar="FILE", help="write the answer as a report, and serve nothing")
def command(file: str, port: str, browser: bool, html: str | None) -> int:
    """Open FILE, a saved answer of --json or a report of --html, on the page: served on 127.0.0.1 until Ctrl-C.

    The numbers are those of the file: nothing is computed again. `ironlaw again FILE` does that.
    """
    number = read_port(port)
    if html is not None:
        check_output(html, "--html")
    verb, answer = read_file(Path(file))
    name = Path(file).name
    if html is not None:
        _write(verb, answer, name, html)
        return 0
    import_extra("uvicorn", "web", "ironlaw open (--html FILE needs nothing)")
    import_extra("starlette", "web", "ironlaw open (--html FILE needs nothing)")
    from ironlaw.web import app, draw

    drawn = _drawn(name, lambda: draw.saved_page(verb, answer, name, verb in app.VERBS))
    return serve(number, drawn, browser)


def read_file(path: Path) -> tuple[str, dict[str, Any]]:
    """The verb and the answer in a file, in today's form; InputError for other files, and for answers that are not read."""
    from ironlaw.estimate.saved import LARGEST
    from ironlaw.page.saved import in_todays_form, verb_of

    data = read_saved(path, LARGEST)
    if isinstance(data, list) and len(data) == 1:
        data = data[0]
    verb = verb_of(data)
    if verb is None:
        raise InputError(f"{path}: no answer of ironlaw: give a file from --json or --html")
    check_version(data["schema_version"], str(path))
    if verb == "estimate" and isinstance(data.get("throughput"), dict):
        data["throughput"] = rename_rates(data["throughput"])
    return verb, in_todays_form(data)


def _drawn(name: str, draw: Any) -> str:
    """What a function draws; InputError where the answer lacks a part, or has one of another kind."""
    try:
        return str(draw())
    except (LookupError, TypeError, ValueError, AttributeError, ArithmeticError) as error:
        missing = f"without {error}" if isinstance(error, KeyError) else "a part of it is not what an answer has"
        raise InputError(f"{name}: cannot be shown: {missing}; ask the question again with --json") from None


def _write(verb: str, answer: dict[str, Any], name: str, html: str) -> None:
    """Write a saved answer as a report."""
    from ironlaw.page.report import report

    text = _drawn(name, lambda: report(answer, verb, ["again", name], date.today()))
    write_file(html, text.encode(), "--html")
    print_note(f"the report is in {html}")
