"""The first lines of a page, for ``--short``: the answer, its money, and the warnings."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ironlaw.cautions.record import sentences
from ironlaw.estimate.answer.as_data import warnings
from ironlaw.report import estimate as pages
from ironlaw.report import search
from ironlaw.report.terminal import Ink

if TYPE_CHECKING:
    from ironlaw.estimate.answer.estimate import Estimate
    from ironlaw.estimate.what_if.left_open import Settings
    from ironlaw.estimate.what_if.offers import Offer

LINES = 6  # of the first paragraph: a title and five lines


def brief_page(page: str, warnings: Iterable[str | Mapping[str, Any]], colour: bool = False) -> str:
    """The first paragraph of a page, at most six lines, and the warnings of its answer.

    >>> print(brief_page("title\\nanswer\\n\\nTable\\n 1\\n\\nwarning: a", ["a"]))
    title
    answer
    warning: a
    """
    return "\n".join([*page.partition("\n\n")[0].split("\n")[:LINES], *_warning_lines(sentences(warnings), colour)])


def brief_estimate(
    estimate: Estimate, index: int = 0, colour: bool = False, offered: Sequence[Offer] = (), settings: Settings | None = None
) -> str:
    """Fit, step, bound and plan of one row, and the time and money of its run."""
    group, at = estimate.place_of(index)
    lines = [line for line in pages.verdict(group, at, Ink(colour), offered, settings) if line.code not in ("placement", "parameters")]
    run = [line.strip() for line in pages.run_lines(group, at)]
    money = [f"{run[0].removeprefix('The ').removesuffix(' (no failures)')}: {run[1]}", *run[2:]] if len(run) > 1 else run
    return "\n".join([*lines, *money, *_warning_lines(warnings(group, at), colour)])


def brief_search(data: dict[str, Any], colour: bool = False) -> str:
    """The question of a search and its best plan; why there is none, where no plan meets the question."""
    ink = Ink(colour)
    title = next(search.head(data, ink))
    lines = list(search.best(data, ink))[:3] if data["plans"] else [line for line in search.no_plan(data, ink) if line]
    return "\n".join([title, *lines, *_money(data), *_warning_lines(sentences(data["warnings"]), colour)])


def _money(data: dict[str, Any]) -> Iterator[str]:
    """Time and money of the run under the best plan."""
    run = data["plans"][0]["run"] if data["plans"] else None
    if run and run["days"] is not None:
        yield f"  {search.run_line(run)}"


def _warning_lines(texts: Sequence[str], colour: bool) -> Iterator[str]:
    """A line for each warning."""
    for text in texts:
        yield Ink(colour).bad("warning: ") + text
