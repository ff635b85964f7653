"""Write what editors and type checkers read: ``src/ironlaw/__init__.pyi``, the functions of the package with every option, and
``src/ironlaw/question/fields.pyi``, the fields of a question and of a job.

``python tools/stub.py`` writes them; with ``--check`` it writes nothing, and exits with 1 if a file is stale.
"""

from __future__ import annotations

import sys
from pathlib import Path

from ironlaw import interface
from ironlaw.question.options import OPTIONS, Option

WIDTH = 140
PACKAGE = Path(__file__).resolve().parents[1] / "src" / "ironlaw"
HEAD = """\
# written by tools/stub.py from the tables of options; edit these tables, not this file

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from ironlaw.errors import IronlawError as IronlawError
from ironlaw.estimate.answer.estimate import Estimate
from ironlaw.measure.diagnose import Diagnosis
from ironlaw.questions.answer import Answer
from ironlaw.search.answer import SearchResult

__version__: str
__all__: list[str]
"""


FIELDS = """\
# written by tools/stub.py from the rows of options; edit these rows, not this file

from typing import Any, NamedTuple

from ironlaw.frozen import Frozen

COLUMNS: tuple[str, ...]
"""


def stub() -> str:
    """The text of the stub of the package."""
    return HEAD + "\n" + "\n".join(function(name) for name in interface.names())


def function(name: str) -> str:
    """One function, on one line where it fits, and what it does."""
    given, keyword = [], False
    for argument in interface.arguments(name):
        if not argument.positional and not keyword:
            given.append("*")
            keyword = True
        given.append(f"{argument.name}: {argument.annotation} = None")
    text = f'    """{interface.summary(name)}\n\n    ``help(ironlaw.{name})`` describes the arguments.\n    """\n'
    line = f"def {name}({', '.join(given)}) -> {interface.returned(name)}:\n"
    if len(line) > WIDTH + 1:
        line = f"def {name}(\n" + "".join(f"    {item},\n" for item in given) + f") -> {interface.returned(name)}:\n"
    return line + text


def fields() -> str:
    """The text of the stub of the fields: one class for the columns of a question, one for its other options, one for a job's."""
    columns = {name: option for name, option in OPTIONS.items() if option.column}
    others = {name: option for name, option in OPTIONS.items() if not option.column}
    classes = (
        _class("Row", "NamedTuple", {name: f"{_may_be_open(option)} = ..." for name, option in columns.items()}),
        _class("OfQuestion", "Frozen", {name: f"{_may_be_open(option)} = ..." for name, option in others.items()}),
        _class("OfJob", "Frozen", {name: option.kind.gives for name, option in OPTIONS.items() if option.of_job}),
    )
    return "\n".join((FIELDS, *classes))


def _may_be_open(option: Option) -> str:
    """The type of an option's field; None where nothing but the question has a value."""
    return option.kind.gives if option.default is not None or option.kind.gives == "Any" else f"{option.kind.gives} | None"


def _class(name: str, base: str, types: dict[str, str]) -> str:
    return f"class {name}({base}):\n" + "".join(f"    {field}: {kind}\n" for field, kind in types.items())


STUBS = {PACKAGE / "__init__.pyi": stub, PACKAGE / "question" / "fields.pyi": fields}


def main(words: list[str]) -> int:
    stale = 0
    for path, text in STUBS.items():
        if "--check" not in words:
            path.write_text(text(), encoding="utf-8")
        elif not (path.is_file() and path.read_text(encoding="utf-8") == text()):
            print(f"stale: {path}: run python tools/stub.py")
            stale = 1
    return stale


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
