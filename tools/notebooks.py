"""Run the notebooks of ``examples/`` and write the outputs they show: text, and HTML where the last value of a cell has it.

``python tools/notebooks.py`` writes; with ``--check`` it writes nothing, names every stale notebook, and exits with 1 if there is one.
Notebooks run in ``examples/`` and need no Jupyter; the figures of a notebook are specifications in Vega-Lite.
"""

from __future__ import annotations

import ast
import contextlib
import io
import json
import sys
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).resolve().parents[1] / "examples"


def current(path: Path) -> str:
    """The notebook with the outputs of every code cell as they are now."""
    notebook = json.loads(path.read_text(encoding="utf-8"))
    names: dict[str, Any] = {"__name__": "__main__"}
    count = 0
    with contextlib.chdir(path.parent):
        for cell in notebook["cells"]:
            if cell["cell_type"] == "code":
                count += 1
                cell["execution_count"] = count
                cell["outputs"] = outputs("".join(cell["source"]), names, count)
    return json.dumps(notebook, indent=1, ensure_ascii=False) + "\n"


def outputs(source: str, names: dict[str, Any], count: int) -> list[dict[str, Any]]:
    """What a cell prints, and the value of its last expression."""
    tree = ast.parse(source)
    last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(compile(tree, "<cell>", "exec"), names)
        value = None if last is None else eval(compile(ast.Expression(last.value), "<cell>", "eval"), names)
    found: list[dict[str, Any]] = []
    if printed.getvalue():
        found.append({"name": "stdout", "output_type": "stream", "text": lines(printed.getvalue())})
    if value is not None:
        data: dict[str, Any] = {"text/html": lines(value._repr_html_())} if hasattr(value, "_repr_html_") else {}
        if not data and hasattr(value, "_repr_mimebundle_"):  # a figure, without the SVG that only some machines make
            data = {kind: one for kind, one in value._repr_mimebundle_().items() if isinstance(one, dict)}
        data["text/plain"] = lines(repr(value))
        found.append({"data": data, "execution_count": count, "metadata": {}, "output_type": "execute_result"})
    return found


def lines(text: str) -> list[str]:
    """A text as the list of lines that a notebook has."""
    return text.splitlines(keepends=True)


def main(words: list[str]) -> int:
    stale = [path for path in sorted(FOLDER.glob("*.ipynb")) if current(path) != path.read_text(encoding="utf-8")]
    for path in stale:
        if "--check" in words:
            print(f"stale: {path.name}: run python tools/notebooks.py")
        else:
            path.write_text(current(path), encoding="utf-8")
    return int("--check" in words and bool(stale))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
