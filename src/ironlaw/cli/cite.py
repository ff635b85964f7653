"""``--cite``: the sources that an answer used, as BibTeX, or as the list ``citations`` of its JSON."""

from __future__ import annotations

from typing import Any

import click

from ironlaw.cli.output import json_text, print_text


def cite_flag() -> click.Option:
    """``--cite``."""
    text = "print the sources that the answer used as BibTeX; with --json: also the list citations"
    return click.Option(["--cite"], is_flag=True, help=text)


def write_cited(answer: Any, data: Any = None) -> None:
    """Write the sources of an answer as BibTeX; with ``data``, write it as JSON with the list of its sources."""
    citations = answer.citations()
    if data is None:
        print_text(f"{citations.bibtex()}\n" if citations else "")
        return
    if isinstance(data, dict):
        cited: Any = {**data, "citations": citations.data()}
    else:  # rows of an estimate
        cited = [{**row, "citations": answer[i].citations().data()} for i, row in enumerate(data)]
    print_text(json_text(cited) + "\n")
