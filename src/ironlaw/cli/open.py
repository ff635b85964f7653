"""``ironlaw open FILE``: a saved answer on the page, or as a report."""

from __future__ import annotations

from datetime import date
from pathlib import Path
from typing import Any

import click

from ironlaw.cli.help import AnswerCommand
from ironlaw.cli.output import print_note
from ironlaw.cli.serve import PORT, read_port, serve
from ironlaw.errors import import_extra
from ironlaw.files import check_output, write_file
from ironlaw.report.saved import drawn, read_answer

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
    verb, answer = read_answer(Path(file))
    name = Path(file).name
    if html is not None:
        _write(verb, answer, name, html)
        return 0
    import_extra("uvicorn", "web", "ironlaw open (--html FILE needs nothing)")
    import_extra("starlette", "web", "ironlaw open (--html FILE needs nothing)")
    from ironlaw.web import app, draw

    return serve(number, drawn(name, lambda: str(draw.saved_page(verb, answer, name, verb in app.VERBS))), browser)


def _write(verb: str, answer: dict[str, Any], name: str, html: str) -> None:
    """Write a saved answer as a report."""
    from ironlaw.page.report import report

    text = drawn(name, lambda: str(report(answer, verb, ["again", name], date.today())))
    write_file(html, text.encode(), "--html")
    print_note(f"the report is in {html}")
