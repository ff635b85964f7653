"""The exceptions that ironlaw raises on purpose.

    IronlawError                a message of one line, a code, an exit status; the option and value, near names, and what would work
      QuestionError   exit 2    the question is wrong
        UnknownNameError        an unknown name; has the nearest known ones
        UnknownOptionError      an unknown option; has the nearest known ones
        MissingOptionError      an option that the question needs
        ConflictError           two options that do not go together
        NoEffectError           an option that changes nothing in this question
        UnitError               a quantity that is not a number with a known unit
        ValueRangeError         a number outside its domain
        UnsupportedError        something that this version does not model
        PlanError               an illegal plan, such as degrees that do not divide
        SpaceError              a search space that is too large
      InputError      exit 3    a file that cannot be read
        CatalogError            a catalogue file that breaks its schema

An illegal row of a batch is not an exception: it is False in the column of a rule.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Self

MOST_CHARACTERS = 2000  # of a message; what is longer quotes a whole file
STEERING = r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069]"  # of a terminal: controls and directions of writing
EMPHASIS = r"\x1b\[(?:0|1|2|31|32)m"  # of the pages: see ``report.terminal.Ink``


def one_line(message: str) -> str:
    """A message as one line of printable characters, cut in the middle where it is very long.

    >>> one_line("a\\x1b[31m\\nb"), len(one_line("x" * 10**6))
    ('a?[31m b', 2000)
    """
    if len(message) > MOST_CHARACTERS:
        message = f"{message[: MOST_CHARACTERS - 505]} ... {message[-500:]}"
    return "".join(c if c.isprintable() else "?" for c in message.replace("\n", " "))


def plain_text(text: str, emphasis: bool = False) -> str:
    """Text of several lines without characters that steer a terminal; with ``emphasis`` it keeps that of the pages.

    >>> plain_text("a\\x1b[31m\\nb\\x1b]0;title\\x07")
    'a?[31m\\nb?]0;title?'
    >>> plain_text("\\x1b[1mbold\\x1b[0m\\x1b[2J", emphasis=True)
    '\\x1b[1mbold\\x1b[0m?[2J'
    """
    if not emphasis:
        return re.sub(STEERING, "?", text)
    return re.sub(f"({EMPHASIS})|{STEERING}", lambda found: found[1] or "?", text)


class IronlawError(Exception):
    """Base of all errors raised on purpose; ``str(error)`` is one line that says what to change."""

    code = "error"
    exit_status = 2

    def __init__(
        self,
        message: str = "",
        *,
        option: str | None = None,
        value: Any = None,
        nearest: Sequence[str] = (),
        offers: Sequence[Mapping[str, Any]] = (),
    ) -> None:
        super().__init__(one_line(str(message)))
        self.option = option or first_option(str(message))
        self.value, self.nearest, self.offers = value, list(nearest), [dict(offer) for offer in offers]

    def about(self, option: str, value: Any) -> Self:
        """The error, which speaks of this option and value unless it names others."""
        self.option = self.option or option
        if self.value is None and self.option == option:
            self.value = value
        return self

    def data(self) -> dict[str, Any]:
        """The error as ``--json`` prints it.

        ``nearest``: known names like the value; ``offers``: options with which the question has an answer.
        """
        value = self.value if isinstance(self.value, (str, int, float, bool, type(None))) else quote(self.value)
        return {
            "code": self.code, "option": self.option, "value": value, "message": str(self), "nearest": self.nearest, "offers": self.offers,
        }  # fmt: skip


def first_option(message: str) -> str | None:
    """The option that a message begins with, as all messages about one do, after three words at most; None where it begins otherwise.

    >>> first_option("--seq-len: 3 is too short"), first_option("missing option --gpus N"), first_option("a.json: run estimate --json")
    ('seq_len', 'gpus', None)
    """
    found = re.match(r"(?:[a-z]+ ){0,3}--([a-z][a-z0-9-]*)", message)
    return found[1].replace("-", "_") if found else None


@contextmanager
def speaking_of(option: str, value: Any) -> Iterator[None]:
    """Let errors of this block speak of an option and its value.

    >>> try:
    ...     with speaking_of("tp", "x"):
    ...         raise UnitError("'x' is no number")
    ... except UnitError as error:
    ...     error.option, error.value
    ('tp', 'x')
    """
    try:
        yield
    except IronlawError as error:
        error.about(option, value)
        raise


class QuestionError(IronlawError):
    """The question cannot be answered as asked."""

    code = "question"


class UnknownNameError(QuestionError):
    """A name that is not in a catalogue or list; the message has the nearest known ones."""

    code = "unknown-name"

    def __init__(self, what: str, name: str, known: Iterable[str], where: str = "", more: str = "", instead: str = "") -> None:
        known = sorted(set(known))
        nearest = nearest_names(name, known)
        if nearest:
            hint = f"; nearest: {', '.join(nearest)}"
        elif instead:  # of a list that says more than its first names
            hint = f"; {instead} ({more})"
        else:
            hint = f"; known: {', '.join(known[:12])}" + (f" and {len(known) - 12} more" if len(known) > 12 else "")
            hint += f" ({more})" if more else ""
        option = first_option(what) or OPTION_OF.get(what)
        super().__init__(f"unknown {what} {name!r}{f' in {where}' if where else ''}{hint}", option=option, value=name, nearest=nearest)


OPTION_OF = {"model": "model", "accelerator": "on", "node": "node", "fabric": "fabric", "framework": "framework", "term": "explain"}


class UnknownOptionError(QuestionError):
    """An option that the question does not have; the message has the nearest that it has."""

    code = "unknown-option"


class MissingOptionError(QuestionError):
    """An option without which the question has no answer."""

    code = "missing-option"


class ConflictError(QuestionError):
    """Two options that do not go together."""

    code = "conflict"


class NoEffectError(QuestionError):
    """An option that changes nothing in this question."""

    code = "no-effect"


class UnitError(QuestionError):
    """A text that is not a number followed by a known unit."""

    code = "unit"


class ValueRangeError(QuestionError):
    """A number outside the domain of the quantity it was given for."""

    code = "range"


class UnsupportedError(QuestionError):
    """Something that this version does not model."""

    code = "unsupported"


class PlanError(QuestionError):
    """An illegal plan; the message has the broken rule."""

    code = "plan"


class SpaceError(QuestionError):
    """A search space that is too large."""

    code = "space"


class InputError(IronlawError):
    """A file that cannot be read, or is not of the expected kind."""

    code = "input"
    exit_status = 3


class CatalogError(InputError):
    """A catalogue file that breaks its schema; the message has file, key and what to do."""

    code = "catalog"


def codes() -> list[str]:
    """The codes of all errors that a question may end in: those of this module.

    >>> codes()[:4]
    ['catalog', 'conflict', 'error', 'input']
    """

    def below(kind: type[IronlawError]) -> Iterator[type[IronlawError]]:
        yield kind
        for inner in kind.__subclasses__():
            yield from below(inner)

    return sorted({kind.code for kind in below(IronlawError) if kind.__module__ == __name__})


def quote(value: object) -> str:
    """A value of a JSON file as an error message quotes it, at most 60 characters."""
    try:
        text = "null" if value is None else repr(value)
    except (ValueError, RecursionError):  # an integer of thousands of digits, or a deep tree
        text = "a value too large to print"
    return text if len(text) <= 60 else text[:57] + "..."


def nearest_names(name: str, known: Iterable[str], count: int = 4) -> list[str]:
    """The ``count`` known names nearest to ``name``, best first.

    Names that contain ``name``, or are contained in it, come before names that only look alike.

    >>> nearest_names("h100", ["h100-sxm", "h100-pcie", "a100-sxm-80gb"])
    ['h100-pcie', 'h100-sxm']
    """
    import difflib

    folded = {k.lower(): k for k in known}
    asked = name.lower().strip()
    inside = [folded[k] for k in sorted(folded) if asked and (asked in k or k in asked)]
    alike = [folded[k] for k in difflib.get_close_matches(asked, folded, n=count, cutoff=0.55)]
    return list(dict.fromkeys(inside + alike))[:count]


def import_extra(module: str, extra: str, purpose: str) -> Any:
    """A module of an optional extra of the package, imported when it is needed; an error names the extra where it is missing."""
    from importlib import import_module

    try:
        return import_module(module)
    except ImportError:
        raise UnsupportedError(f'{purpose} needs {module.partition(".")[0]}: pip install "ironlaw[{extra}]"') from None
