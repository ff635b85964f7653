"""The house stands as docs/architecture.md draws it: who imports whom, module sizes, no path of a machine."""

from __future__ import annotations

import ast
import graphlib
import io
import re
import subprocess
import tokenize
from collections.abc import Iterator
from pathlib import Path

import pytest

import ironlaw
import paths

ROOT = Path(ironlaw.__file__).parent
MODULES = sorted(p for p in ROOT.rglob("*.py"))

# room -> rooms it may import; a room may always import itself
MAY_IMPORT = {
    "frozen": set(),
    "errors": set(),
    "earlier": {"errors"},
    "divisors": set(),
    "files": {"errors"},
    "progress": set(),
    "units": {"errors"},
    "terms": set(),
    "formulas": set(),
    "catalog": {"files", "units", "errors"},
    "shown": {"errors"},
    "cautions": {"units"},
    "law": {"units", "frozen"},
    "question": {"divisors", "units", "errors", "frozen"},
    "precision": {"catalog", "law", "question", "errors", "frozen"},
    "job": {"precision", "catalog", "frozen", "question"},
    "cluster": {"catalog", "errors", "frozen"},
    "plan": {"frozen"},
    "estimate": {
        "progress",
        "cautions",
        "shown", "question", "precision", "job", "cluster", "plan", "catalog", "law", "terms", "formulas", "divisors", "units", "errors",
        "files", "frozen",
    },
    # a page prints what its room found
    "report": {
        "figures", "page",
        "cautions",
        "search", "questions", "measure", "validate", "shown", "question", "estimate", "precision", "job", "cluster",
        "plan", "catalog", "terms", "formulas",
        "units", "errors", "files",
    },
    # drawn from the plain data of an answer alone
    "figures": {"units", "files", "errors"},
    "page": {"figures", "units", "files", "errors"},
    "web": {
        "progress", "figures", "page", "report", "interface", "validate", "measure", "launch", "question", "catalog", "files", "errors",
    },
    # a trainer's script is split into arguments as a launch script is
    "trainers": {"launch", "question", "errors", "files", "frozen"},
    # a run is checked by its estimate and by those of changed runs
    "checks": {"trainers", "estimate", "question", "errors"},
    "launch": {"question", "estimate", "precision", "job", "cluster", "plan", "catalog", "units", "errors", "files", "frozen"},
    # measured peaks come with launch arguments, so validate reads them through launch: one of three edges between siblings
    "validate": {
        "progress",
        "cautions",
        "launch", "question", "estimate", "precision", "job", "cluster", "plan", "catalog", "law", "terms", "units", "errors", "files",
    },
    "search": {
        "progress",
        "cautions",
        "shown", "question", "estimate", "precision", "job", "cluster", "plan", "catalog", "terms", "divisors", "units", "errors", "files",
    },
    # a comparison prints the launch flags of its plans, and a saved search is searched again: the other edges between siblings
    "questions": {
        "progress",
        "cautions",
        "launch", "search", "shown", "question", "estimate", "precision", "job", "cluster", "plan", "catalog", "law", "terms",
        "units", "errors", "files",
    },
    "measure": {
        "cautions",
        "shown", "question", "estimate", "precision", "job", "cluster", "plan", "catalog", "law", "terms", "units", "errors", "files",
    },
    # the verbs as Python functions: the tables of options, and the function that each verb runs
    "interface": {"cli", "search", "questions", "measure", "question", "estimate", "catalog", "units", "errors"},
    "cli": {
        "progress",
        "shown",
        "cautions",
        "measure", "questions", "search", "validate", "launch", "trainers", "checks", "report",
        "figures", "page", "web", "question", "estimate", "precision", "job",
        "cluster", "plan", "catalog",
        "units", "errors", "files",
    },
}  # fmt: skip


def room(path: Path) -> str:
    return path.relative_to(ROOT).parts[0].removesuffix(".py")


def imports(path: Path) -> set[str]:
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("ironlaw"):
            parts = node.module.split(".")
            found |= {parts[1]} if len(parts) > 1 else {a.name for a in node.names if a.name != "__version__"}
        elif isinstance(node, ast.Import):
            found |= {a.name.split(".")[1] for a in node.names if a.name.startswith("ironlaw.")}
    return found


@pytest.mark.parametrize("path", MODULES, ids=lambda p: str(p.relative_to(ROOT)))
def test_a_module_imports_only_what_its_room_may(path):
    where = room(path)
    if where in ("__init__", "__main__"):
        return
    assert where in MAY_IMPORT, f"a new room: add {where} to the picture and to this test"
    for other in imports(path) - {where, "earlier"}:
        assert other in MAY_IMPORT[where], f"{path.relative_to(ROOT)} imports {other}"


# rooms of estimate/ from the bottom up: each imports only rooms below it, and no module stands outside a room
FLOORS = (
    "documents", "fabric", "pipeline", "layer", "network", "memory", "legality", "evidence", "bind", "step", "planner", "answer", "what_if",
)  # fmt: skip


def dotted(path: Path) -> str:
    """The name of a module as an import statement spells it."""
    return ".".join(("ironlaw", *path.relative_to(ROOT).with_suffix("").parts)).removesuffix(".__init__")


BY_NAME = {dotted(path): path for path in MODULES}


def nodes_at_run_time(node: ast.AST) -> Iterator[ast.AST]:
    """All nodes below one, without those that only a type checker reads."""
    for child in ast.iter_child_nodes(node):
        if not (isinstance(child, ast.If) and "TYPE_CHECKING" in ast.unparse(child.test)):
            yield child
            yield from nodes_at_run_time(child)


def modules_imported(path: Path) -> set[str]:
    """The modules of ironlaw that a module imports, those inside its functions too."""
    found = set()
    for node in nodes_at_run_time(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.module:
            found |= {f"{node.module}.{a.name}" if f"{node.module}.{a.name}" in BY_NAME else node.module for a in node.names}
        elif isinstance(node, ast.Import):
            found |= {a.name for a in node.names}
    return (found & set(BY_NAME)) - {dotted(path), "ironlaw"}  # of ironlaw itself everybody reads the version


def test_rooms_of_an_estimate_import_only_downwards():
    rooms = {name: name.split(".")[2] for name in BY_NAME if name.startswith("ironlaw.estimate.")}
    assert set(rooms.values()) == set(FLOORS), "a module of estimate/ stands in a room; a new room has its floor here and in the picture"
    upwards = [
        f"{name} imports {other}"
        for name, room_of in rooms.items()
        for other in modules_imported(BY_NAME[name]) & set(rooms)
        if FLOORS.index(rooms[other]) > FLOORS.index(room_of)
    ]
    assert upwards == []


def test_no_module_of_an_estimate_stands_outside_a_room():
    assert [path.name for path in (ROOT / "estimate").glob("*.py")] == ["__init__.py"]


def test_the_architecture_page_lists_every_module():
    page = (paths.ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    rows = dict(re.findall(r"^\| (?:`([^`]+)/`|\(top\)) \| .* \| (.*) \|$", page, flags=re.MULTILINE))
    missing = [
        str(path.relative_to(ROOT))
        for path in MODULES
        if not path.stem.startswith("__") and f"`{path.stem}`" not in rows.get(str(path.parent.relative_to(ROOT)).removeprefix("."), "")
    ]
    assert missing == []


def test_no_modules_import_each_other_in_a_circle():
    graph = graphlib.TopologicalSorter({name: modules_imported(path) for name, path in BY_NAME.items()})
    graph.prepare()  # raises CycleError, which names the modules of a circle


def test_every_function_of_a_module_is_named_somewhere_else():
    """In src, in a tool or in the documentation; a function that only its own test calls is left over. Laws are the public face."""
    trees = {path: ast.parse(path.read_text(encoding="utf-8")) for path in MODULES}
    words = {word for tree in trees.values() for word in names_used(tree)}
    for path in [*(paths.ROOT / "tools").glob("*.py"), *(paths.ROOT / "docs").rglob("*.md")]:
        words |= set(re.findall(r"\w+", path.read_text(encoding="utf-8")))
    left_over = [
        f"{path.relative_to(ROOT)}: {node.name}"
        for path, tree in trees.items()
        for node in tree.body
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)) and not node.decorator_list and node.name not in words
    ]
    assert left_over == []


def names_used(tree: ast.AST) -> Iterator[str]:
    """The names that code reads, and the words of short texts, by which modules are called."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load):
            yield node.id
        elif isinstance(node, ast.Attribute):
            yield node.attr
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and len(node.value) < 60:
            yield from re.findall(r"\w+", node.value)


def test_catalogue_and_hardware_numbers_stay_out_of_laws():
    for path in (ROOT / "law").glob("*.py"):
        assert "catalog" not in imports(path)


@pytest.mark.parametrize("path", MODULES, ids=lambda p: str(p.relative_to(ROOT)))
def test_a_module_has_at_most_500_lines_of_code(path):
    assert code_lines(path.read_text(encoding="utf-8")) <= 500


def code_lines(text: str) -> int:
    """The lines of a module that are neither blank, nor a comment, nor part of a docstring."""
    spaces = (tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER)
    tokens = tokenize.generate_tokens(io.StringIO(text).readline)
    lines = {line for token in tokens if token.type not in spaces for line in range(token.start[0], token.end[0] + 1)}
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef)) and ast.get_docstring(node, clean=False) is not None:
            lines -= set(range(node.body[0].lineno, (node.body[0].end_lineno or 0) + 1))
    return len(lines)


def test_code_lines_leave_out_docstrings_comments_and_blanks():
    assert code_lines('"""A page.\n\nMore."""\n\n# why\nx = """two\nlines"""  # here\ndef f():\n    """Say."""\n    return 1\n') == 4


def test_nothing_committed_names_a_private_path():
    top = paths.ROOT
    try:
        listed = subprocess.run(["git", "ls-files"], cwd=top, capture_output=True, text=True, check=True).stdout.split()
    except (OSError, subprocess.CalledProcessError):
        listed = [str(p.relative_to(top)) for p in top.rglob("*.py") if ".venv" not in p.parts]
    for name in listed:
        path = top / name
        if path.suffix in (".py", ".md", ".toml", ".txt") and path.is_file() and path != Path(__file__):
            found = re.search(r"(?<![\w.)])/(work|home|root|Users)/|(\.\./)+shared\b", path.read_text(encoding="utf-8"))
            assert found is None, f"{name} names {found}"
