"""Write ``src/ironlaw/__init__.pyi``: the functions of the package with every option, for editors and type checkers.

``python tools/stub.py`` writes it; with ``--check`` it writes nothing, and exits with 1 if the file is stale.
"""

from __future__ import annotations

import sys
from pathlib import Path

from ironlaw import interface

WIDTH = 140
STUB = Path(__file__).resolve().parents[1] / "src" / "ironlaw" / "__init__.pyi"
HEAD = """\
# written by tools/stub.py from the tables of options; edit these tables, not this file

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from ironlaw.errors import IronlawError as IronlawError
from ironlaw.estimate.answer import Estimate
from ironlaw.measure.diagnose import Diagnosis
from ironlaw.questions.answer import Answer
from ironlaw.search.answer import SearchResult

__version__: str
__all__: list[str]
"""


def stub() -> str:
    """The text of the file."""
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


def main(words: list[str]) -> int:
    text = stub()
    if "--check" in words:
        same = STUB.is_file() and STUB.read_text(encoding="utf-8") == text
        if not same:
            print(f"stale: {STUB}: run python tools/stub.py")
        return int(not same)
    STUB.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
