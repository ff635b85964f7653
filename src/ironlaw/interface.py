"""The verbs of the command line as Python functions, each with the options of the verb as keyword arguments.

A verb is found in the table of the command line, and its arguments are made from the table of its options: a new verb or option needs
no line here. Importing this module loads no numpy.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property
from importlib import import_module
from typing import TYPE_CHECKING, Any, NamedTuple

from ironlaw.earlier import VERBS as SYNONYMS
from ironlaw.earlier import first_name
from ironlaw.errors import IronlawError, MissingOptionError, QuestionError, UnknownOptionError, nearest_names, quote
from ironlaw.question.options import GROUPS, OPTIONS, Option, heading_of

if TYPE_CHECKING:
    from inspect import Signature

POSITIONAL = ("model", "on", "gpus")  # arguments that may come without their name, where a verb has them


class Argument(NamedTuple):
    """One argument of a function: its name, the types it takes, its help line."""

    name: str
    types: tuple[str, ...]
    help: str
    positional: bool = False
    samples: tuple[str, ...] = ()  # values that it may have

    @property
    def annotation(self) -> str:
        """The annotation; None leaves an option open."""
        return "Any" if "Any" in self.types else " | ".join((*self.types, "None"))


class Form(NamedTuple):
    """Where a verb's function is, what it returns, and its options under their headings."""

    run: Callable[[], Callable[..., Any]]
    returns: str
    headings: Mapping[str, Mapping[str, Option]]
    extra: tuple[Argument, ...]  # arguments that are no option of the command line
    first: tuple[str, ...] = POSITIONAL


CATALOG = Argument("catalog", ("Sequence[str]", "str"), "folders of your records, which override the shipped ones")


def names() -> list[str]:
    """The names of the functions, in the order of the command line."""
    from ironlaw.cli.main import VERBS

    return [*(verb for verb in VERBS if _is_question(verb)), *SYNONYMS]


def _is_question(verb: str) -> bool:
    """True for a verb that answers a question about a run."""
    from ironlaw.cli.main import VERBS

    return verb in _FORMS or VERBS[verb][0].startswith("questions.")


def hint(name: str) -> str:
    """The functions whose names are near a wrong one."""
    near = nearest_names(name, names())
    return f"; nearest: {', '.join(near)}" if near else ""


def arguments(verb: str) -> list[Argument]:
    """The arguments of a verb's function, those that may come without their name first."""
    form = _form(verb)
    found = {name: _argument(name, option) for listed in form.headings.values() for name, option in listed.items()}
    found |= {argument.name: argument for argument in form.extra}
    first = [found.pop(name)._replace(positional=True) for name in form.first if name in found]
    return [*first, *found.values()]


def summary(verb: str) -> str:
    """What a verb does, in one line."""
    from ironlaw.cli.main import VERBS

    return VERBS[first_name(verb)][1]


def returned(verb: str) -> str:
    """The name of the class of a verb's answer."""
    return _form(verb).returns


def _argument(name: str, option: Option) -> Argument:
    """The argument of an option; a column option also takes a list or an array."""
    types = option.kind.takes
    if option.column and "Any" not in types:
        types = (*types, "Sequence[Any]")
    return Argument(name, tuple(dict.fromkeys(types)), in_python(option.help), samples=option.kind.samples)


def _form(verb: str) -> Form:
    """The form of a verb, by its first name."""
    verb = first_name(verb)
    return _FORMS[verb]() if verb in _FORMS else _question_form(verb)


def _grouped(table: Mapping[str, Option], own: str) -> dict[str, dict[str, Option]]:
    """Options under their headings; those that have none under ``own``, which comes first, then other headings of the verb."""
    placed = {name: heading_of(name, option, own) for name, option in table.items()}
    headings = list(dict.fromkeys([own, *(heading for heading in placed.values() if heading not in GROUPS), *GROUPS]))
    found = {heading: {name: table[name] for name in table if placed[name] == heading} for heading in headings}
    return {heading: listed for heading, listed in found.items() if listed}


def _estimate_form() -> Form:
    def run() -> Callable[..., Any]:
        from ironlaw.estimate.answer.estimate import estimate

        return estimate

    return Form(run, "Estimate", _grouped(OPTIONS, "Question"), (CATALOG,))


def _plan_form() -> Form:
    from ironlaw.search.question import OWN

    def run() -> Callable[..., Any]:
        from ironlaw.search.answer import search

        return search

    progress = Argument("progress", ("Callable[[str], None]",), "called with a line on how far the search is")
    headings = {"Search": OWN, **_grouped({n: o for n, o in OPTIONS.items() if n not in OWN}, "Question")}
    return Form(run, "SearchResult", headings, (CATALOG, progress))


def _diagnose_form() -> Form:
    def run() -> Callable[..., Any]:
        from ironlaw.measure.diagnose import diagnose

        def with_question(paths: Any = None, *, catalog: Any = (), question: Mapping[str, Any] | None = None, **given: Any) -> Any:
            """Diagnose files; options of an estimate of the same run may be arguments, or in ``question``."""
            if paths is None and given.get("tokens_per_second") is None:
                raise MissingOptionError("missing argument paths: a trace, a log or a snapshot, or several; or tokens_per_second")
            if question is not None and not isinstance(question, Mapping):
                raise QuestionError(f"question is {quote(question)}, must be a table of options")
            asked = {**(question or {}), **{name: given.pop(name) for name in list(given) if name in OPTIONS}}
            own = {argument.name for argument in _DIAGNOSE} | {"folders"}
            if strange := next((name for name in given if name not in own), None):
                near = nearest_names(strange, {*own, *OPTIONS})
                raise UnknownOptionError(
                    f"unknown option {strange!r}; nearest: {', '.join(near or sorted(own))}", option=strange, nearest=near
                )
            from ironlaw.catalog.load import given_folders

            folders = (*given.pop("folders", ()), *given_folders(catalog))
            return diagnose(() if paths is None else paths, question=asked, on=asked.get("on"), folders=folders, **given)

        return with_question

    headings = _grouped(OPTIONS, "Question")
    return Form(run, "Diagnosis", headings, (*_DIAGNOSE, CATALOG), ("paths",))


_DIAGNOSE = (
    Argument("paths", ("str", "Path", "Sequence[str | Path]"), "traces, logs and memory snapshots, or folders of them"),
    Argument("unlinked", ("str",), "keep or drop device events whose launch is not in the file (default: keep)"),
    Argument("last_step", ("str",), "keep or drop kernels that the last step launched (default: keep)"),
    Argument("against", ("str", "Path"), "compare with a saved JSON answer of an estimate of the same run"),
    Argument("patterns", ("Sequence[str | Path]",), "TOML files with more names of communication kernels"),
    Argument("kernel_names", ("Sequence[str | Path]",), "TOML files with more names, classes and number formats of other kernels"),
    Argument("time_unit", ("str",), "unit of ts and dur in a Chrome trace: us, ms or ns (default: us)"),
    Argument("untraced_step", ("float", "str"), "step time without a profiler; shows what the profiler cost"),
    Argument(
        "tokens_per_second",
        ("float", "str"),
        "measured throughput of all accelerators, of a log without one, or with model and without paths",
    ),
    Argument("question", ("Mapping[str, Any]",), "options of an estimate of the same run, instead of single arguments"),
)
_FORMS: dict[str, Callable[[], Form]] = {"estimate": _estimate_form, "plan": _plan_form, "diagnose": _diagnose_form}


def _question_form(verb: str) -> Form:
    """The form of a verb of ``questions/``."""
    module = import_module(f"ironlaw.questions.{verb}.options")

    def run() -> Callable[..., Any]:
        from ironlaw.catalog.load import given_folders
        from ironlaw.questions.answer import answer_question

        def ask(catalog: Any = (), **given: Any) -> Any:
            """The answer of the verb's question."""
            return answer_question(verb, given, given_folders(catalog))

        return ask

    own_arguments = getattr(module, "ARGUMENTS", ("model",))
    first = (*own_arguments, *(name for name in POSITIONAL if name not in own_arguments))
    return Form(run, "Answer", _grouped(module.OPTIONS, verb.capitalize()), (CATALOG,), first)


# --- the words of Python

_MISSING = re.compile(r"missing option --(\S+)(?: [A-Z][A-Z|.]*)?(?= |$)")
_FLAG = re.compile(r"(?<![\w-])--([a-z][a-z0-9]*(?:-[a-z0-9]+)*)")


def in_python(text: str) -> str:
    """A message or a help line with arguments in place of flags; a command line that it quotes stays.

    >>> in_python("--global-batch-size is 0, must be a whole number")
    'global_batch_size is 0, must be a whole number'
    """
    if "ironlaw " in text:
        return text
    text = _MISSING.sub(r"missing argument --\1", text).replace("missing MODEL", "missing argument model")
    return _FLAG.sub(lambda found: found[1].replace("-", "_"), text)


class Verb:
    """A verb as a function. ``inspect.signature`` and ``help`` show its arguments, which are the options of the command line."""

    def __init__(self, name: str) -> None:
        self.__name__ = self.__qualname__ = name
        self.__module__ = "ironlaw"
        self.__doc__ = description(name)

    @cached_property
    def _arguments(self) -> list[Argument]:
        return arguments(self.__name__)

    @property
    def __signature__(self) -> Signature:
        from inspect import Parameter, Signature

        made = [
            Parameter(
                argument.name,
                Parameter.POSITIONAL_OR_KEYWORD if argument.positional else Parameter.KEYWORD_ONLY,
                default=None,
                annotation=_annotation(argument.annotation),
            )
            for argument in self._arguments
        ]
        return Signature(made)

    def __get__(self, owner: Any, kind: Any = None) -> Verb:  # as a function's, so that help() prints the arguments
        return self

    def __call__(self, *values: Any, **given: Any) -> Any:
        """Answer the question; the errors speak of arguments where those of the command line speak of flags."""
        named = dict(zip(self._positional, values, strict=False))
        if len(values) > len(named):
            listed = ", ".join(self._positional)
            raise TypeError(f"{self.__name__}() takes {len(named)} arguments without a name ({listed}), got {len(values)}: name the others")
        if twice := next((name for name in named if name in given), None):
            raise TypeError(f"{self.__name__}() got two values of {twice!r}")
        try:
            return _form(self.__name__).run()(**named, **{name: value for name, value in given.items() if value is not None})
        except IronlawError as error:
            error.args = (in_python(str(error)), *error.args[1:])
            raise

    @property
    def _positional(self) -> Iterable[str]:
        return [argument.name for argument in self._arguments if argument.positional]

    def __getattr__(self, name: str) -> Any:
        """A name of the module that the verb's name also stands for: ``ironlaw.estimate.answer.estimate``."""
        verb = self.__dict__.get("__name__", "")
        if not name.startswith("__"):
            try:
                module = import_module(f"ironlaw.{verb}")
                return getattr(module, name) if hasattr(module, name) else import_module(f"ironlaw.{verb}.{name}")
            except ModuleNotFoundError:
                pass
        raise AttributeError(f"ironlaw.{verb} has no attribute {name!r}")

    def __repr__(self) -> str:
        return f"<function ironlaw.{self.__name__}>"

    def __reduce__(self) -> str:
        return self.__name__  # the function of this name in the package, in any process


def _annotation(text: str) -> Any:
    """The annotation as an object, so that a signature prints without quotes."""
    from collections.abc import Callable, Mapping
    from pathlib import Path

    return eval(text, {"Any": Any, "Sequence": Sequence, "Mapping": Mapping, "Callable": Callable, "Path": Path})


def description(verb: str) -> str:
    """The text of ``help()``: what the verb does, what it returns, and the help line of each argument under its heading."""
    form, name = _form(verb), first_name(verb)
    described = {argument.name: argument for argument in arguments(verb)}
    lines = [
        summary(verb),
        "",
        f"Returns {_RETURNS[form.returns]}.",
        "Raises ironlaw.IronlawError, with one line of what to change, for a question that has no answer.",
        "",
        f"The arguments are the options of `ironlaw {name}`. An argument that is None is left open.",
    ]
    listed: dict[str, list[str]] = {heading: list(found) for heading, found in form.headings.items()}
    extra = [argument.name for argument in form.extra]
    for heading, found in ({"Files": extra, **listed} if verb == "diagnose" else {**listed, "Records": extra}).items():
        lines += ["", heading, *(f"  {n}: {described[n].help.removeprefix(f'{n}: ')}" for n in found)]
    return "\n".join(lines)


_RETURNS = {
    "Estimate": "an Estimate: columns such as step_seconds and fits, and for each row to_dict(), citations() and to_pandas()",
    "SearchResult": "a SearchResult: first(n) and pareto() are plans, again(price=...) asks with other limits and prices",
    "Answer": "an Answer: headline, tables by name, warnings, to_dict(), citations()",
    "Diagnosis": "a Diagnosis: verdict, findings, profiles, comparison; data() has them as plain data",
}
