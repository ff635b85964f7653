"""A figure in Python: a notebook shows it, and it is saved as a file."""

from __future__ import annotations

import contextlib
from collections.abc import Container
from pathlib import Path
from typing import Any

from ironlaw.errors import UnsupportedError
from ironlaw.figures import convert
from ironlaw.figures.marks import Row, Spec
from ironlaw.figures.table import data_of
from ironlaw.figures.theme import dressed
from ironlaw.files import check_output, write_file

VEGA_LITE = "application/vnd.vegalite.v6+json"
SVG = "image/svg+xml"


def chosen(bundle: dict[str, Any], include: Container[str] | None, exclude: Container[str] | None) -> dict[str, Any]:
    """The forms of a bundle that a notebook asks for.

    >>> chosen({"text/plain": "a", "text/html": "<b>a"}, None, {"text/html"})
    {'text/plain': 'a'}
    """
    return {kind: data for kind, data in bundle.items() if (not include or kind in include) and not (exclude and kind in exclude)}


class Picture:
    """A figure of an answer. Its text is what it says; a notebook draws it."""

    def __init__(self, name: str, spec: Spec) -> None:
        self.name, self.spec = name, spec

    def __repr__(self) -> str:
        title = self.spec["title"]
        return f"{title['text']}: {title['subtitle']}\n{self.spec['description']}"

    @property
    def rows(self) -> list[Row]:
        """The data that the figure draws."""
        return data_of(self.spec)

    def to_dict(self, theme: str = "light") -> dict[str, Any]:
        """The specification in Vega-Lite, with the colours of a theme."""
        return dressed(self.spec, theme)

    def save(self, path: str | Path, theme: str = "light") -> None:
        """Write the figure to a file: .svg, .png or .pdf with ``ironlaw[figures]``, .json or .csv without."""
        form = convert.format_of(str(path))
        check_output(str(path), "path")
        write_file(path, convert.file_of(self.spec, form, theme))

    def _repr_mimebundle_(self, include: Container[str] | None = None, exclude: Container[str] | None = None) -> dict[str, Any]:
        bundle: dict[str, Any] = {"text/plain": repr(self), VEGA_LITE: self.to_dict()}
        wanted = chosen({**bundle, SVG: ""}, include, exclude)
        if SVG in wanted:
            with contextlib.suppress(UnsupportedError):  # a notebook that draws Vega-Lite needs no SVG
                bundle[SVG] = convert.file_of(self.spec, "svg").decode()
        return chosen(bundle, include, exclude)
