"""Write the generated pages of the documentation, and the output of the commands that the other pages show.

    python tools/docs.py            write
    python tools/docs.py --check    write nothing; name every stale file; exit with 1 if there is one

Generated pages: ``docs/reference/{cli,options,laws,catalogue,log-formats}.md``; ``docs/warnings.md``; ``docs/validation.md``, which predicts every published run that
ships; ``docs/plans-against-published.md``, which searches for better plans than the published ones.

In ``README.md``, ``docs/tutorial.md``, ``docs/clouds.md`` and ``docs/how-to/*.md`` a comment before a fenced block makes the tool run or fill the block:

    <!-- file run.toml -->             write the block below to that file in the page's folder
    <!-- shipped models/NAME.toml -->  show that file of the catalogue that ships
    <!-- run -->                       run the lines ``$ ironlaw ...`` of the block below in that folder and show their output
    <!-- run status=1 -->              expect the last command to exit with 1 (default: 0)
    <!-- run lines=1-5,9 -->           show only these lines of the output, gaps as ``...``
    <!-- run match="^step|pipe" -->    show only lines in which this regular expression is found; with ``lines``, the lines of either

Between ``<!-- headline -->`` and ``<!-- /headline -->`` the tool writes the errors that the record of the fit contains.

A command may end in ``> FILE``; ``$ echo $?`` shows the last exit status; a ``pycon`` block runs its ``>>>`` lines.
Every page starts with an empty folder that links to ``examples`` and ``tests``.
"""

from __future__ import annotations

import argparse
import ast
import contextlib
import doctest
import importlib
import inspect
import io
import json
import os
import pkgutil
import re
import shlex
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
NO_RECORDS = ROOT / "tools"  # a folder without records, in the place of the user's catalogue
WIDTH = 100
MADE_BY = "<!-- written by tools/docs.py; edit the code it reads, not this page -->"
PAGES = ("README.md", "docs/tutorial.md", "docs/clouds.md", "docs/how-to/*.md", "docs/documents/*.md")
_HEADLINE = re.compile(r"(?<=<!-- headline -->\n).*?(?=<!-- /headline -->)", re.DOTALL)
_BLOCK = re.compile(r"<!-- (run|file|shipped)\b([^>]*?)-->\n```(\w+)\n(.*?)^```$", re.DOTALL | re.MULTILINE)


class BrokenError(Exception):
    """A block that does not do what its marker says."""


# Pages with blocks to run


def pages() -> list[Path]:
    """Every page that may contain blocks to run."""
    return [path for pattern in PAGES for path in sorted(ROOT.glob(pattern))]


def live(path: Path) -> str:
    """The page with every block run again."""
    before = Path.cwd()
    with tempfile.TemporaryDirectory() as folder:
        for name in ("examples", "tests"):  # the folders at the top of a clone that pages use
            if (ROOT / name).is_dir():
                (Path(folder) / name).symlink_to(ROOT / name)
        names: dict[str, Any] = {"__name__": "__main__"}
        os.chdir(folder)
        try:
            text = _HEADLINE.sub(lambda _: headline(), path.read_text(encoding="utf-8"))
            return _BLOCK.sub(lambda found: _block(found, Path(folder), names), text)
        except BrokenError as error:
            raise BrokenError(f"{path.relative_to(ROOT)}: {error}") from None
        finally:
            os.chdir(before)


def _block(found: re.Match[str], folder: Path, names: dict[str, Any]) -> str:
    kind, settings, language, body = found[1], shlex.split(found[2]), found[3], found[4]
    if kind == "file":
        target = folder / settings[0]
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(body, encoding="utf-8")
        return found[0]
    if kind == "shipped":
        return f"{found[0][: found.start(4) - found.start()]}{shipped(settings[0])}```"
    asked = dict(item.split("=", 1) for item in settings)
    made = _python(body, names) if language == "pycon" else _console(body, folder, asked)
    return f"{found[0][: found.start(4) - found.start()]}{made}```"


def headline() -> str:
    """The errors of held-out families in words, from the record of the fit."""
    from ironlaw.validate.fit import RECORD

    record = json.loads(RECORD.read_text(encoding="utf-8")) if RECORD.is_file() else {}
    figures = record.get("headline") or {}
    errors = [figures.get(f"{name}_abs_error") for name in ("family_median", "pooled_median", "p90")]
    if None in errors or figures.get("band_coverage") is None:
        return "No fit is recorded: `ironlaw validate fit` writes one.\n"
    family, pooled, p90 = (f"{100 * value:.1f} %" for value in errors)
    return (
        f"- Step time of dense models, median error: **{family}** over families, {pooled} over all runs; one run in ten is off by more than {p90}.\n"
        f"- The 80 % error band holds for {100 * figures['band_coverage']:.0f} % of a family's runs.\n"
    )


def _console(body: str, folder: Path, asked: dict[str, str]) -> str:
    """A console block: its ``$`` lines, each followed by its present output."""
    shown, status, expected = [], 0, int(asked.get("status", 0))
    commands = [line for line in body.splitlines() if line.startswith("$ ")]
    last = [c for c in commands if c != "$ echo $?"][-1]
    for command in commands:
        shown.append(command)
        if command == "$ echo $?":
            shown.append(str(status))
            continue
        status, printed = run(command[2:], folder)
        shown += _cut(printed.rstrip("\n").split("\n") if printed.strip() else [], **{k: asked[k] for k in asked if k != "status"})
        if status != (expected if command is last else 0):
            raise BrokenError(f"{command}: exit status {status}, expected {expected if command is last else 0}:\n{printed[-600:]}")
    return "\n".join(shown) + "\n"


def shipped(name: str) -> str:
    """The present text of a file of the catalogue that ships."""
    path = ROOT / "src" / "ironlaw" / "catalog" / "data" / name
    if not path.is_file():
        raise BrokenError(f"shipped {name}: no such file")
    return path.read_text(encoding="utf-8").rstrip("\n") + "\n"


def run(command: str, folder: Path) -> tuple[int, str]:
    """Run an ``ironlaw`` command in ``folder``, in this process; return its exit status and all it prints."""
    from ironlaw.cli import main as command_line

    words = shlex.split(command)
    target = words.pop() if len(words) > 1 and words[-2] == ">" else ""
    if target:
        words.pop()
    if words[0] != "ironlaw":
        raise BrokenError(f"{command}: only ironlaw is run")
    printed = io.StringIO()
    with contextlib.chdir(folder), environment(quiet()), contextlib.redirect_stdout(printed), contextlib.redirect_stderr(printed):
        try:
            status = command_line.main(words[1:])
        except Exception as error:
            raise BrokenError(f"{command}: {type(error).__qualname__}: {error}") from error
    if target:
        (folder / target).write_text(printed.getvalue(), encoding="utf-8")
        return status, ""
    return status, printed.getvalue()


@contextlib.contextmanager
def environment(variables: dict[str, str]) -> Iterator[None]:
    """Set these environment variables; restore the old ones at the end."""
    before = dict(os.environ)
    os.environ.update(variables)
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)


def quiet() -> dict[str, str]:
    """Environment variables that make every machine print the same."""
    return {"NO_COLOR": "1", "COLUMNS": str(WIDTH), "LINES": "50", "PYTHONUTF8": "1", "IRONLAW_CATALOG": str(NO_RECORDS)}


def _cut(printed: list[str], lines: str = "", match: str = "") -> list[str]:
    """The lines that ``1-5,9`` names or in which ``match`` is found, with ``...`` for the gaps."""
    if not lines and not match:
        return printed
    wanted: set[int] = set()
    for part in lines.split(",") if lines else []:
        first, _, last = part.partition("-")
        wanted |= set(range(int(first), int(last or first) + 1))
    kept: list[str] = []
    for number, line in enumerate(printed, 1):
        if number in wanted or (match and re.search(match, line)):
            kept.append(line)
        elif not kept or kept[-1] != "...":
            kept.append("...")
    if not any(line != "..." for line in kept):
        raise BrokenError(f"lines={lines} match={match} selects no line of the output")
    return kept


def _python(body: str, names: dict[str, Any]) -> str:
    """A pycon block: its examples, each followed by its present output."""
    shown = []
    for example in doctest.DocTestParser().get_examples(body):
        first, *more = example.source.rstrip("\n").split("\n")
        shown += [f">>> {first}", *(f"... {line}" for line in more)]
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed), warnings.catch_warnings():
            warnings.simplefilter("ignore", ResourceWarning)  # a page's example may leave a file for the interpreter to close
            try:
                exec(compile(ast.Interactive(ast.parse(example.source).body), "<page>", "single"), names)
            except Exception as error:
                raise BrokenError(f">>> {first}: {type(error).__qualname__}: {error}") from None
        shown += printed.getvalue().rstrip("\n").split("\n") if printed.getvalue() else []
    return "\n".join(shown) + "\n"


# Reference pages


def cli_page() -> str:
    """The help of every verb."""
    parts = [
        MADE_BY,
        "# Command line",
        "The output of `--help-all`, verb by verb. [Options](options.md) describes the options of a question.",
    ]
    with tempfile.TemporaryDirectory() as folder:
        for words in verbs():
            asked = " ".join(["ironlaw", *words, "--help-all" if is_leaf(words) else "--help"])
            status, printed = run(asked, Path(folder))
            if status:
                raise BrokenError(f"{asked}: exit status {status}")
            parts.append(f"## `{' '.join(['ironlaw', *words])}`\n\n```text\n{printed.rstrip()}\n```")
    return "\n\n".join(parts) + "\n"


def is_leaf(words: list[str]) -> bool:
    """Whether these words ask a question; ``ironlaw`` and ``ironlaw runs`` are groups of verbs."""
    from ironlaw.cli.main import command_of

    return len(words) > 1 or bool(words and not hasattr(command_of(words[0]), "commands"))


def verbs() -> list[list[str]]:
    """Every verb and its sub-commands, the bare command first."""
    from ironlaw.cli.main import VERBS, command_of

    found: list[list[str]] = [[]]
    for name in VERBS:
        found.append([name])
        found += [[name, below] for below in sorted(getattr(command_of(name), "commands", {}))]
    return found


def options_page() -> str:
    """Every option of a question."""
    from ironlaw.question.options import OPTIONS

    lines = [
        MADE_BY,
        "",
        "# Options of a question",
        "",
        "One table serves all ways to ask. On the command line an option is `--global-batch-size`, in TOML, in the header of a CSV and",
        "in Python it is `global_batch_size`; `model` is the argument that follows `estimate`. *Rows*: Python takes an array here, and",
        "every item is one row of the answer. An option that is not given is chosen by the [rules](../rules.md).",
        "",
        "| option | value | rows | meaning |",
        "|---|---|---|---|",
    ]
    for name, option in OPTIONS.items():
        lines.append(f"| `{name}` | {_cell(option.metavar)} | {'yes' if option.column else ''} | {_cell(option.help)} |")
    lines += ["", *_decisions()]
    lines += ["", *_search_options()]
    return "\n".join(lines) + "\n"


def _decisions() -> Iterator[str]:
    """What a search does with every option that a question leaves open."""
    from ironlaw.estimate.planner.rows import columns_of
    from ironlaw.estimate.planner.space import read_space
    from ironlaw.estimate.planner.unsearched import PLACES
    from ironlaw.question.options import OPTIONS

    space = read_space(None)
    yield "## What a search varies"
    yield ""
    yield "Of the options that a question leaves open: the axes of the space that ships; what a page lists as *not searched*, under the name and"
    yield "where it says; and what is no decision of a search, with the reason."
    yield ""
    yield "| option | searched | not searched: name on the page | where it is listed | why it is neither |"
    yield "|---|---|---|---|---|"
    for name, one in ((name, option.search) for name, option in OPTIONS.items()):
        varied = "yes" if any(space.varies(axis) for axis in columns_of(name)) else ""
        where = PLACES[one.where][1] if one.words else ""
        yield f"| `{name}` | {'in part' if varied and one.partly else varied} | {one.words} | {where} | {one.settled} |"


def _search_options() -> Iterator[str]:
    """Every option that only a search has, or that it reads in another way."""
    from ironlaw.search.question import AXIS_OPTIONS, OWN

    axes = ", ".join(f"`{name}`" for name in (*AXIS_OPTIONS, "overlap", "offload"))
    yield "## Options of a search"
    yield ""
    yield f"`ironlaw plan` has the options above and these. An option in both tables is read as described below. {axes} set axes of the search."
    yield ""
    yield "| option | value | meaning |"
    yield "|---|---|---|"
    for name, option in OWN.items():
        yield f"| `{name}` | {_cell(option.metavar)} | {_cell(option.help)} |"


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


def laws_page() -> str:
    """Every public law, from its docstring."""
    parts = [
        MADE_BY,
        "# Laws",
        "Pure functions over arrays in `ironlaw.law`. Units are in brackets, followed by the domain; outside the domain a law returns nan."
        " Names are those of [the notation](../notation.md).",
    ]
    for module, laws in law_modules():
        parts.append(f"## `{module.__name__}`\n\n{_prose(inspect.getdoc(module) or '')}")
        parts += [_law(law) for law in laws]
    return "\n\n".join(parts) + "\n"


def law_modules() -> Iterator[tuple[Any, list[Callable[..., Any]]]]:
    """The modules of laws by name, with their public functions in the order of the file."""
    import ironlaw.law

    for found in sorted(pkgutil.iter_modules(ironlaw.law.__path__), key=lambda m: m.name):
        if found.name.startswith("_"):
            continue
        module = importlib.import_module(f"ironlaw.law.{found.name}")
        functions = inspect.getmembers(module, inspect.isfunction)
        laws = [law for name, law in functions if law.__module__ == module.__name__ and not name.startswith("_")]
        yield module, sorted(laws, key=lambda law: law.__code__.co_firstlineno)


def _law(law: Callable[..., Any]) -> str:
    """One law: signature, formula, parameters, answer, source, omissions."""
    doc = inspect.getdoc(law) or ""
    head = doc.partition("\n\n")[0]
    lines = [f"### `{law.__name__}({', '.join(inspect.signature(law).parameters)})`", "", _prose(head)]
    fields = _fields(doc)
    if fields.get("Parameters"):
        lines += ["", *(f"- `{name}` {_unescaped(text)}" for name, text in _parameters(fields["Parameters"]))]
    labels = ("Where", "Factor", "Offset", "Returns", "Source", "Leaves out")
    lines += ["", *(f"*{name}*{_after(fields[name])}  " for name in labels if fields.get(name))]
    return "\n".join(lines).rstrip()


def _after(text: str) -> str:
    """The text after a label: a unit in brackets directly, anything else after a colon."""
    return f" {_prose(text)}" if text.startswith("[") else f": {_prose(text)}"


def _fields(doc: str) -> dict[str, str]:
    """The labelled parts of a docstring; continuation lines are indented."""
    fields: dict[str, str] = {}
    label = ""
    for line in doc.split("\n"):
        found = re.match(r"(Parameters|Where|Factor|Offset|Returns|Source|Leaves out)\b:?\s*(.*)$", line)
        if found:
            label = found[1]
            fields[label] = found[2]
        elif label and line.startswith(" "):
            fields[label] += "\n" + line.strip()
        else:
            label = ""
    return fields


def _parameters(block: str) -> list[tuple[str, str]]:
    found: list[tuple[str, str]] = []
    for line in block.strip().split("\n"):
        start = re.match(r"(\w+) (\[[^\]]+\]:?.*)$", line)
        if start:
            found.append((start[1], start[2]))
        elif found:
            found[-1] = (found[-1][0], f"{found[-1][1]} {line}")
    return found


def _prose(text: str) -> str:
    return _unescaped(" ".join(text.split()))


def _unescaped(text: str) -> str:
    """Docstring text as Markdown: double backticks single, addresses as links, a star outside code escaped."""
    text = re.sub(r"``(.+?)``", r"`\1`", text)
    pieces = text.split("`")
    for i in range(0, len(pieces), 2):
        pieces[i] = re.sub(r"(https?://[^\s,;)]+[^\s,;).:])", r"<\1>", pieces[i].replace("*", "\\*"))
    return "`".join(pieces)


def catalogue_page() -> str:
    """The names of all records that ship."""
    from ironlaw import units
    from ironlaw.catalog import load
    from ironlaw.catalog.records import KINDS
    from ironlaw.estimate.layer.counts import total_parameters

    def records(kind: str) -> list[Any]:
        return [load.record(kind, name) for name in load.names(kind)]

    def calibration(name: str) -> str:
        record = load.record("calibration", name)
        return f"`{name}`, {record.grade}" + (f" on `{record.device}`" if record.device and record.grade == "measured" else "")

    lines = [MADE_BY, "", "# The catalogue that ships", ""]
    lines += [
        "`ironlaw catalog show NAME` prints a record with the source of every number. How a file is written: [catalogue](../catalogue.md)."
    ]
    for kind in KINDS:
        names = load.names(kind)
        lines += ["", f"## {kind.capitalize()} ({len(names)})", ""]
        if kind == "accelerators":
            lines += ["| name | title | usual node | calibration |", "|---|---|---|---|"]
            lines += [f"| `{r.name}` | {r.title} | `{r.usual_node}` | {calibration(r.calibration)} |" for r in records(kind)]
        elif kind == "calibration":
            graded = [r.grade for r in records(kind)]
            lines += [
                f"{graded.count('measured')} measured, {graded.count('prior')} prior: carried over from another record by judgement.",
                "",
            ]
            lines += ["| name | grade | version | software | GEMM | attention | collectives |", "|---|---|---|---|---|---|---|"]
            lines += [
                f"| `{r.name}` | {r.grade} | {r.version} | {_cell(r.software)} | {', '.join(sorted(r.gemm))} |"
                f" {', '.join(sorted(r.attention))} | {'yes' if r.collective else ''} |"
                for r in records(kind)
            ]
        elif kind == "models":
            lines += ["| name | title | parameters |", "|---|---|---|"]
            lines += [f"| `{r.name}` | {r.title} | {units.show(float(total_parameters(r)), 'parameter')} |" for r in records(kind)]
        elif kind in ("nodes", "fabrics", "frameworks", "systems"):
            lines += ["| name | title |", "|---|---|"]
            lines += [f"| `{r.name}` | {_cell(r.title)} |" for r in records(kind)]
        else:
            lines += [", ".join(f"`{name}`" for name in names)]
    return "\n".join(lines) + "\n"


def warnings_page() -> str:
    """Every warning, by the table of their codes."""
    from ironlaw.cautions.table import ROOMS

    parts = [
        MADE_BY,
        "# Warnings",
        "An answer may have warnings. A page prints their sentences; the JSON has each as `code`, `option`, `values`, `sentence`, `action` and"
        " `anchor`, which leads here. The code stays when a sentence is worded anew, so a program compares codes. Values are in SI units. A"
        " warning about a part of an answer, such as a file or a job, begins with its name, which is the value `where`. In the sentences below"
        " `{name}` stands for a value.",
    ]
    for title, rows in ROOMS.items():
        parts.append(f"## {title}")
        for code, row in rows.items():
            sentence, action = (re.sub(r"\{(\w+)[^{}]*\}", r"{\1}", text) for text in (row.sentence, row.action))
            parts += [f"### {code}", f"`{sentence.replace('{action}', action)}`"]
            more = [f"Option: `--{row.option.replace('_', '-')}`."] if row.option else []
            parts += [" ".join([*more, *([f"What to do: `{action}`."] if action else [])])] if more or action else []
    return "\n\n".join(parts) + "\n"


def validation_page() -> str:
    """Every published run that ships against its prediction, and measured memory."""
    with tempfile.TemporaryDirectory() as folder:
        status, printed = run("ironlaw validate --memory --generic --markdown", Path(folder))
    if status or not printed.startswith("# "):
        raise BrokenError(f"docs/validation.md: ironlaw validate --memory --generic --markdown: exit status {status}:\n{printed[-600:]}")
    return f"{MADE_BY}\n\n{printed.rstrip()}\n"


def plans_page() -> str:
    """Published plans against the best that searches find."""
    with tempfile.TemporaryDirectory() as folder:
        status, printed = run("ironlaw validate --plans --markdown", Path(folder))
    if status or not printed.startswith("# "):
        raise BrokenError(f"docs/plans-against-published.md: ironlaw validate --plans --markdown: exit status {status}:\n{printed[-600:]}")
    return f"{MADE_BY}\n\n{printed.rstrip()}\n"


def formats_page() -> str:
    """The logs that are read, from the table of their formats."""
    from ironlaw.measure.logs.formats import table

    lines = [
        "# Logs that are read",
        "",
        MADE_BY,
        "",
        "A file is recognised by its content. The table is `src/ironlaw/measure/data/logs.toml`; a row with a module is read by that module of",
        "`measure/logs`. *Recalled* means that the source of the trainer was not opened again.",
        "",
        "| format | trainers | gives | read by | source | source read |",
        "|---|---|---|---|---|---|",
    ]
    for row in table():
        source = f"[code]({row.url})" if row.url else ""
        lines.append(
            f"| `{row.name}` | {', '.join(row.trainers)} | {', '.join(row.gives)} | {row.module or 'its row'} | {source} | {row.read} |"
        )
    return "\n".join(lines) + "\n"


REFERENCE: dict[str, Callable[[], str]] = {
    "docs/reference/log-formats.md": formats_page,
    "docs/reference/cli.md": cli_page,
    "docs/reference/options.md": options_page,
    "docs/reference/laws.md": laws_page,
    "docs/reference/catalogue.md": catalogue_page,
    "docs/warnings.md": warnings_page,
    "docs/validation.md": validation_page,
    "docs/plans-against-published.md": plans_page,
}


def computed() -> Iterator[tuple[Path, Callable[[], str]]]:
    """Every file that this tool writes, with the function that makes its text."""
    for name, make in REFERENCE.items():
        yield ROOT / name, make
    for path in pages():
        yield path, lambda path=path: live(path)


def main(arguments: list[str] | None = None) -> int:
    """Write or check every file; 1 where one is stale or a block fails."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="write nothing; name every stale file; exit with 1 if there is one")
    check = parser.parse_args(arguments).check
    status = 0
    for path, make in computed():
        name = path.relative_to(ROOT)
        try:
            text = current(make)
        except BrokenError as error:
            sys.stderr.write(f"{error}\n")
            status = 1
            continue
        if path.is_file() and path.read_text(encoding="utf-8") == text:
            continue
        if check:
            sys.stderr.write(f"{name} is stale: run python tools/docs.py\n")
            status = 1
        else:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
            sys.stdout.write(f"wrote {name}\n")
    return status


def current(make: Callable[[], str]) -> str:
    """The text of a file as the program makes it now, without the user's own catalogue."""
    with environment({"IRONLAW_CATALOG": str(NO_RECORDS)}):
        return make()


if __name__ == "__main__":
    sys.exit(main())
