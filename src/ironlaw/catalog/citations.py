"""Citations of sources, as a list and as BibTeX: sources of values, and the literature that the docstring of a law names."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple, overload

from ironlaw.catalog.sourced import ASKED, Source

_YEAR = re.compile(r"(?<!\d)(?:19[4-9]\d|20[0-3]\d)(?!\d)")
_ARXIV = re.compile(r"(?:arxiv\.org/\w+/|arXiv[ :])(\d\d)\d\d\.\d{4,5}", re.IGNORECASE)
_URL = re.compile(r"https?://[^\s;,)]+[^\s;,).]")
_PLACE = re.compile(r"^(sections?|equations?|eq\.|tables?|figures?|appendix|algorithm|pages?|chapters?|paragraph)(\s|$)")  # inside a work
_ENDS = re.compile(r"^\s*(Leaves out|Returns|Parameters|Where|Domain|Raises|Exact|Note)\b|^\s*>>>|^\s*$")
_SPECIAL = str.maketrans({**{c: f"\\{c}" for c in "&%$#_"}, "{": r"\{", "}": r"\}", "\\": r"\textbackslash{}", "~": r"\textasciitilde{}",
                          "^": r"\textasciicircum{}"})  # fmt: skip


class Citation(NamedTuple):
    """One source: a key for BibTeX, title, address, year (of the work, else of the day it was read), and when it was read."""

    key: str
    title: str
    url: str
    year: str
    read: str  # ISO date, recalled (known, not opened again), or "" for the literature of a law
    grade: str

    def bibtex(self) -> str:
        """The source as an ``@misc`` entry."""
        note = {"": "", "recalled": "recalled, not opened again"}.get(self.read, f"read {self.read}")
        fields = {"title": f"{{{self.title.translate(_SPECIAL)}}}", "howpublished": f"\\url{{{self.url}}}" if self.url else "",
                  "year": self.year, "note": note}  # fmt: skip
        lines = [f"  {name} = {{{value}}}," for name, value in fields.items() if value]
        return "\n".join([f"@misc{{{self.key},", *lines, "}"])


class Citations(tuple[Citation, ...]):
    """Citations in the order of their titles; as text they are BibTeX."""

    __slots__ = ()

    def bibtex(self) -> str:
        """All entries."""
        return "\n\n".join(item.bibtex() for item in self)

    def data(self) -> list[dict[str, str]]:
        """Plain data, one object a source."""
        return [item._asdict() for item in self]

    def __str__(self) -> str:
        return self.bibtex()

    def __repr__(self) -> str:
        return self.bibtex()

    @overload  # type: ignore[override]
    def __getitem__(self, at: int) -> Citation: ...
    @overload
    def __getitem__(self, at: slice) -> Citations: ...
    def __getitem__(self, at: Any) -> Any:
        found = super().__getitem__(at)
        return Citations(found) if isinstance(at, slice) else found


def cite(sources: Iterable[Source], laws: Iterable[Callable[..., Any]] = ()) -> Citations:
    """The citations of the sources of values and of the literature of laws; a source that is named twice is there once."""
    found: dict[tuple[str, str], Citation] = {}
    for source in sources:
        if source != ASKED:
            found.setdefault((source.title, source.url), Citation("", source.title, source.url, _year(source), source.read, source.grade))
    works = dict.fromkeys(work for law in laws for work in works_of(law.__doc__ or ""))
    for title, url in works:
        if url not in {u for _, u in found}:
            found[title, url] = Citation("", title, url, _year_of(title, url), "", "paper")
    return Citations(_with_keys(sorted(found.values(), key=lambda item: (item.title.lower(), item.url))))


def _year(source: Source) -> str:
    """The year of the work, else of the day it was read."""
    return _year_of(source.title, source.url) or (source.read[:4] if _YEAR.match(source.read) else "")


def _year_of(title: str, url: str) -> str:
    """The last year in a title, else the year in an arXiv number; "" where there is none."""
    if years := _YEAR.findall(title):
        return str(years[-1])
    arxiv = _ARXIV.search(f"{title} {url}")
    return f"20{arxiv[1]}" if arxiv else ""


def works_of(doc: str) -> Iterator[tuple[str, str]]:
    """Title and address of every work that the ``Source:`` of a law's docstring names with an address.

    >>> list(works_of("Source: Huang et al., GPipe, NeurIPS 2019, section 2.3, https://arxiv.org/abs/1811.06965"))
    [('Huang et al., GPipe, NeurIPS 2019', 'https://arxiv.org/abs/1811.06965')]
    """
    lines = iter(doc.split("\n"))
    text = next((line.split("Source:", 1)[1] for line in lines if line.strip().startswith("Source:")), "")
    for line in lines if text else ():
        if _ENDS.match(line):
            break
        text += " " + line.strip()
    for piece in text.split(";"):
        start = 0
        for url in _URL.finditer(piece):
            before, start = piece[start : url.start()], url.end()
            named = before.rpartition("(")[2] if before.count("(") > before.count(")") else before  # (author, title, address)
            words = [word.strip() for word in re.sub(r"^[\s).,]*(and\s+|with [^,]* by\s+)?", "", named).strip(" ,").split(",")]
            ends = next((i for i, word in enumerate(words) if i and _PLACE.match(word)), len(words))
            yield re.sub(r"\s*\([^)]*\)?$", "", ", ".join(words[:ends])) or url[0], url[0]


def _with_keys(citations: Iterable[Citation]) -> Iterator[Citation]:
    """Citations with keys: the first words of the title and the year; a letter tells two of the same key apart."""
    used: dict[str, int] = {}
    for item in citations:
        words = re.findall(r"[a-z0-9]+", item.title.lower())[:3] or ["source"]
        stem = "-".join([*words, *([item.year] if item.year and item.year not in words else [])])
        used[stem] = used.get(stem, 0) + 1
        yield item._replace(key=stem if used[stem] == 1 else f"{stem}-{used[stem]}")
