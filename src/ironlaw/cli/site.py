"""``ironlaw site build DIR``: validation, catalogue, documentation and estimates as files for any static host."""

from __future__ import annotations

from pathlib import Path

import click

from ironlaw.cli.help import AnswerCommand
from ironlaw.cli.output import print_line
from ironlaw.errors import InputError, ValueRangeError
from ironlaw.files import check_folder, is_file, is_folder, write_folder

_EXAMPLES = """
\b
Examples:
  ironlaw site build public
  ironlaw site build public --models llama-3-8b,qwen3-8b --on h100-sxm,rtx-4090 --gpus 1,8,64 --tokens 100B
"""


@click.group("site", epilog=_EXAMPLES, no_args_is_help=False)
def command() -> None:
    """Make pages that need no server."""


@command.command("build", cls=AnswerCommand, epilog=_EXAMPLES)
@click.argument("folder", metavar="DIR")
@click.option("--models", metavar="LIST", help="models of the grid of estimates")
@click.option("--on", metavar="LIST", help="accelerators of the grid")
@click.option("--gpus", metavar="LIST", help="numbers of accelerators of the grid")
@click.option("--tokens", metavar="TOKENS", help="tokens of the runs  [default: 1T]")
@click.option("--docs", metavar="FOLDER", help="folder of the documentation  [default: that of the checkout, else none]")
def build(folder: str, models: str | None, on: str | None, gpus: str | None, tokens: str | None, docs: str | None) -> int:
    """Write the site into DIR, whole or not at all: a new folder, an empty one, or one that this command wrote before."""
    check_folder(folder)
    from ironlaw.web.site import Grid, pages

    usual = Grid()
    grid = Grid(
        _names("models", models) or usual.models,
        _names("accelerators", on) or usual.on,
        _counts(gpus) or usual.gpus,
        tokens or usual.tokens,
    )
    found = _documentation(docs)
    count = write_folder(folder, pages(grid, found))
    print_line(f"{count:,} files in {folder}; open {Path(folder) / 'index.html'}")
    if found is None:
        print_line("without the documentation: give its folder with --docs")
    return 0


def _names(kind: str, listed: str | None) -> tuple[str, ...]:
    """Names of records; an error where there is none of one."""
    from ironlaw.catalog import load

    return tuple(load.resolve(kind, name.strip(), ()) for name in listed.split(",")) if listed else ()


def _counts(listed: str | None) -> tuple[int, ...]:
    """Numbers of accelerators."""
    words = [word.strip() for word in listed.split(",")] if listed else []
    if any(not word.isdigit() or not 1 <= int(word) <= 1_000_000 for word in words):
        raise ValueRangeError(f"--gpus {listed}: give whole numbers from 1, with commas between")
    return tuple(map(int, words))


def _documentation(docs: str | None) -> Path | None:
    """The folder of the documentation: as given, else that of the checkout that this is, else none."""
    if docs is not None:
        if not is_folder(docs) or not is_file(Path(docs) / "index.md"):
            raise InputError(f"--docs {docs}: no folder with an index.md")
        return Path(docs)
    found = Path(__file__).parents[3] / "docs"
    return found if is_file(found / "index.md") else None
