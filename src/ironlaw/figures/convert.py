"""A figure as a file: SVG, PNG or PDF with the extra ``figures``, its specification as JSON or its data as CSV without."""

from __future__ import annotations

import json
from typing import Any

from ironlaw.errors import QuestionError, import_extra
from ironlaw.figures.marks import Spec
from ironlaw.figures.table import csv_of
from ironlaw.figures.theme import dressed

VERSION = "6.4"  # of Vega-Lite, as the page has it
PICTURES = ("svg", "png", "pdf")
FORMATS = (*PICTURES, "json", "csv")
SCALE = 2.0  # pixels of a PNG for each pixel of the figure


def format_of(path: str) -> str:
    """The format that a file's name asks for; an error where none does.

    >>> format_of("a.SVG")
    'svg'
    """
    ending = path.rpartition(".")[2].lower()
    if ending not in FORMATS:
        raise QuestionError(
            f"--output {path}: the name must end in {', '.join('.' + name for name in FORMATS)}", option="output", value=path
        )
    return ending


def converter() -> Any:
    """The library that draws without a browser; an error names the extra where it is missing."""
    return import_extra("vl_convert", "figures", "a figure as SVG, PNG or PDF (JSON and CSV need nothing)")


def file_of(spec: Spec, form: str, theme: str = "light") -> bytes:
    """The bytes of a figure in a format of ``FORMATS``."""
    if form == "csv":
        return csv_of(spec).encode()
    whole = dressed(spec, theme)
    if form == "json":
        return (json.dumps(whole, indent=1, allow_nan=False) + "\n").encode()
    library = converter()
    if form == "svg":
        return str(library.vegalite_to_svg(whole, vl_version=VERSION)).encode()
    if form == "pdf":
        return bytes(library.vegalite_to_pdf(whole, vl_version=VERSION))
    return bytes(library.vegalite_to_png(whole, vl_version=VERSION, scale=SCALE))
