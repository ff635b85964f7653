"""The forms of a verb's question, and one checker of what its options do together.

A verb that answers several kinds of question has a row for each in ``FORMS`` of its ``options``: which option asks for it, what it takes,
what it needs. What one option needs or excludes is said by its own row in the table of options.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

from ironlaw.errors import ConflictError, MissingOptionError, NoEffectError
from ironlaw.frozen import Frozen
from ironlaw.question.options import Option, flag


class OneOf(NamedTuple):
    """A need that one of several options meets."""

    options: tuple[str, ...]
    says: str  # what is said where none is given


class Form(Frozen):
    """One form of a question. The first row that is asked for counts; the last is asked where no other is.

    >>> hours = Form("--gpu-hours, which replaces the estimate", when=("gpu_hours",), takes=("gpus",), needs=("gpus",))
    >>> choose({"gpu_hours": 1e6}, (hours, Form("an estimate", when=("model",)))).says
    '--gpu-hours, which replaces the estimate'
    """

    says: str  # what it is, behind "with": the option that asks for it and what that does
    when: tuple[str, ...] = ()  # options that ask for it, each alone
    value: Any = None  # of the option that asks for it; None: any
    beside: tuple[str, ...] = ()  # options that must be given too
    takes: Collection[str] | None = None  # options that change its answer, beside those of ``when``; None: all
    needs: tuple[str | OneOf, ...] = ()
    excludes: Mapping[str, str] = MappingProxyType({})  # options that it does not take for a reason of their own
    module: str = ""  # that answers it, in the folder of the verb, where its ``ask`` has several


def named(name: str) -> str:
    """An option in a sentence: ``--gpus``, or ``MODEL``."""
    return "MODEL" if name == "model" else flag(name)


def choose(values: Mapping[str, Any], forms: Sequence[Form]) -> Form:
    """The form that the given options ask for."""
    return next((form for form in forms if _is_asked(values, form)), forms[-1])


def _is_asked(values: Mapping[str, Any], form: Form) -> bool:
    """True where an option asks for a form; a switch that is off does not."""
    by = any(values.get(name, False) is not False and form.value in (None, values[name]) for name in form.when)
    return by and all(name in values for name in form.beside)


def check_form(values: Mapping[str, Any], form: Form, forms: Sequence[Form]) -> None:
    """Refuse an option that changes nothing in the form of the question, and a question that lacks what its form needs."""
    others = {name for other in forms for name in other.when if other is not form}
    for name in values:
        if name in form.excludes:
            raise ConflictError(f"{named(name)} does not go with {form.says}: {form.excludes[name]}", option=name)
        if form.takes is None or name in (*form.takes, *form.when, *form.beside) or (name in others and values[name] is False):
            continue
        if name in others and any(by in values for by in form.when):
            raise ConflictError(f"give {named(name)} or {form.says}, not both: one question at a time", option=name)
        raise NoEffectError(_say_idle(name, form, forms), option=name)
    need(values, *form.needs)


def _say_idle(name: str, form: Form, forms: Sequence[Form]) -> str:
    """Why an option changes nothing in a form, and what to do."""
    theirs = {other.says: other for other in forms if other.takes is not None and name in other.takes}
    if len(theirs) == 1 and form.takes is not None and form.says not in theirs and not _needs_other(form):
        return f"{named(name)} has no effect without {next(iter(theirs))}: give both"
    takes = sorted(form.takes or (), key=lambda option: (option != "model", option))
    listed = f"; it takes {', '.join(map(named, takes))}" if 0 < len(takes) <= 12 else ""
    beside = theirs[form.says].beside if form.says in theirs else ()
    more = f", and with {' and '.join(map(named, beside))} this one too" if beside else ""
    return f"{named(name)} has no effect with {form.says}: leave one out{listed}{more}"


def _needs_other(form: Form) -> bool:
    """True for a form that an option of its own asks for, which excludes those of others."""
    return form.when not in ((), ("model",))


def need(values: Mapping[str, Any], *needs: str | OneOf) -> None:
    """Refuse a question without what it needs."""
    for item in needs:
        options, says = item if isinstance(item, OneOf) else ((item,), "")
        if not any(name in values for name in options):
            told = says or ("missing MODEL" if item == "model" else f"missing option {flag(str(item))}")
            raise MissingOptionError(told, option=options[0])


def check_pairs(values: Mapping[str, Any], table: Mapping[str, Option]) -> None:
    """Refuse an option that has no effect without another, and two that exclude each other, as their rows say.

    >>> from ironlaw.question.options import OPTIONS
    >>> check_pairs({"global_batch_size": 512.0, "global_batch_tokens": 4e6}, OPTIONS)
    Traceback (most recent call last):
    ironlaw.errors.ConflictError: give --global-batch-tokens or --global-batch-size, not both: the other is in sequences
    """
    for name, option in table.items():
        if name not in values:
            continue
        for other, why in option.excludes.items():
            if other in values and values[name] is not False:  # a switch that is off excludes nothing
                raise ConflictError(f"give {named(name)} or {named(other)}, not both{': ' * bool(why)}{why}", option=name)
        if option.needs and not any(other in values for other in option.needs):
            raise NoEffectError(f"{named(name)} has no effect without {' or '.join(map(named, option.needs))}: give both", option=name)
