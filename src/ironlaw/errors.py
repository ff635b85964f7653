"""The exception tree: every question ironlaw cannot answer ends in one of these.

    IronlawError                a message of one line, a code, an exit status
      QuestionError   exit 2    the question is wrong
        UnknownNameError        a name that is in no catalogue; carries the nearest names
        UnitError               a quantity that is no number with a known unit
        ValueRangeError         a number outside its domain
        UnsupportedError        understood, and not answered by this version
        PlanError               a plan that cannot exist (degrees that do not divide)
        SpaceError              a space too large to search; says how large and how to narrow it
      InputError      exit 3    a file that cannot be read
        CatalogError            a catalogue file that breaks its schema

A row of a batch that cannot be is never an exception: it is a False in a named rule column.
"""

from __future__ import annotations

from collections.abc import Iterable


class IronlawError(Exception):
    """Base of all errors raised on purpose; ``str(error)`` is one line a user can act on."""

    code = "error"
    exit_status = 2


class QuestionError(IronlawError):
    """The question cannot be answered as asked."""

    code = "question"


class UnknownNameError(QuestionError):
    """A name that is in no catalogue or list; names the nearest valid ones."""

    code = "unknown-name"

    def __init__(self, what: str, name: str, known: Iterable[str], where: str = "", more: str = "") -> None:
        known = sorted(set(known))
        self.nearest = nearest_names(name, known)
        if self.nearest:
            hint = f"; nearest: {', '.join(self.nearest)}"
        else:
            hint = f"; known: {', '.join(known[:12])}" + (f" and {len(known) - 12} more" if len(known) > 12 else "")
            hint += f" ({more})" if more else ""
        super().__init__(f"unknown {what} {name!r}{_place(where)}{hint}")


class UnitError(QuestionError):
    """A text that is not a number followed by a known unit."""

    code = "unit"


class ValueRangeError(QuestionError):
    """A number outside the domain of the quantity it was given for."""

    code = "range"


class UnsupportedError(QuestionError):
    """Something understood that this version does not model; says what it does."""

    code = "unsupported"


class PlanError(QuestionError):
    """A single plan that cannot exist, with the rule it breaks."""

    code = "plan"


class SpaceError(QuestionError):
    """A space too large to search."""

    code = "space"


class InputError(IronlawError):
    """A file that cannot be read as what it was given for."""

    code = "input"
    exit_status = 3


class CatalogError(InputError):
    """A catalogue file that breaks its schema: which file, which key, what to do."""

    code = "catalog"


def nearest_names(name: str, known: Iterable[str], count: int = 4) -> list[str]:
    """The ``count`` known names closest to ``name``, best first.

    A name that contains the asked one (or is contained in it) comes before names that merely look alike.

    >>> nearest_names("h100", ["h100-sxm", "h100-pcie", "a100-sxm-80gb"])
    ['h100-pcie', 'h100-sxm']
    """
    import difflib

    folded = {k.lower(): k for k in known}
    asked = name.lower().strip()
    inside = [folded[k] for k in sorted(folded) if asked and (asked in k or k in asked)]
    alike = [folded[k] for k in difflib.get_close_matches(asked, folded, n=count, cutoff=0.55)]
    return list(dict.fromkeys(inside + alike))[:count]


def _place(where: str) -> str:
    return f" in {where}" if where else ""
