"""Settings as YAML, TOML or JSON: dotted keys become tables, and every line has its reason behind it where the syntax has comments."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Sequence
from itertools import groupby
from typing import Any

from ironlaw.launch.write.lines import Line

_WIDEST = 140


def tree_of(lines: Iterable[Line]) -> dict[str, Any]:
    """Settings as tables in tables.

    >>> tree_of([Line("a.b", 1, ""), Line("a.c", 2, "")])
    {'a': {'b': 1, 'c': 2}}
    """
    tree: dict[str, Any] = {}
    for line in lines:
        *tables, name = line.key.split(".")
        at = tree
        for table in tables:
            at = at.setdefault(table, {})
        at[name] = line.value
    return tree


def yaml_text(lines: Sequence[Line], head: Sequence[str]) -> str:
    """Settings as YAML; keys of one table stand together.

    >>> print(yaml_text([Line("a", True, "why"), Line("b.c", "4", "")], ["Head"]), end="")
    # Head
    <BLANKLINE>
    a: true  # why
    b:
      c: "4"
    """
    return "\n".join([*_comments(head), "", *_yaml_lines([(line.key.split("."), line) for line in lines], 0)]) + "\n"


def _yaml_lines(items: Sequence[tuple[list[str], Line]], depth: int) -> list[str]:
    """The lines of one table: every key once, in the order in which they come first."""
    out: list[str] = []
    for name in dict.fromkeys(path[0] for path, _ in items):
        below = [(path[1:], line) for path, line in items if path[0] == name]
        indent = "  " * depth
        if len(below) == 1 and not below[0][0]:
            line = below[0][1]
            out += with_reason(f"{indent}{name}: {yaml_value(line.value)}", line.why)
        else:
            out += [f"{indent}{name}:", *_yaml_lines(below, depth + 1)]
    return out


_PLAIN = re.compile(r"[A-Za-z_/][\w./-]*")
_WORDS = ("true", "false", "null", "yes", "no", "on", "off", "y", "n")


def yaml_value(value: Any) -> str:
    """A value in YAML; a text is quoted where YAML would read something else.

    >>> yaml_value("bf16"), yaml_value("no"), yaml_value([1, "a b"]), yaml_value(1e-05)
    ('bf16', '"no"', '[1, "a b"]', '1.0e-05')
    """
    if isinstance(value, str):
        return value if _PLAIN.fullmatch(value) and value.lower() not in _WORDS else json.dumps(value)
    if isinstance(value, (list, tuple)):
        return f"[{', '.join(map(yaml_value, value))}]"
    if isinstance(value, float):
        return re.sub(r"^(-?\d+)(?=e)", r"\1.0", repr(value))
    return json.dumps(value)


def toml_text(lines: Sequence[Line], head: Sequence[str]) -> str:
    """Settings as TOML, a header for each table.

    >>> print(toml_text([Line("a.b", 1, "why")], ["Head"]), end="")
    # Head
    <BLANKLINE>
    [a]
    b = 1  # why
    """
    out = _comments(head)

    def table(line: Line) -> str:
        return line.key.rpartition(".")[0]

    order = list(dict.fromkeys(map(table, lines)))
    for name, of_table in groupby(sorted(lines, key=lambda line: order.index(table(line))), key=table):
        out += ["", *([f"[{name}]"] if name else [])]
        for line in of_table:
            out += with_reason(f"{line.key.rpartition('.')[2]} = {json.dumps(line.value)}", line.why)
    return "\n".join(out) + "\n"


def json_text(lines: Sequence[Line], head: Sequence[str]) -> str:
    """Settings as JSON, which has no comments.

    >>> print(json_text([Line("a.b", 1, "why")], ["Head"]), end="")
    {
      "a": {
        "b": 1
      }
    }
    """
    del head
    return json.dumps(tree_of(lines), indent=2) + "\n"


def with_reason(text: str, why: str) -> list[str]:
    """A line and its reason: behind it, or above it where both are too long for one line."""
    if not why:
        return [text]
    indent = text[: len(text) - len(text.lstrip())]
    return [f"{text}  # {why}"] if len(text) + len(why) + 4 <= _WIDEST else [f"{indent}# {why}", text]


def _comments(head: Sequence[str]) -> list[str]:
    return [f"# {line}".rstrip() for line in head]


SYNTAXES: dict[str, Callable[[Sequence[Line], Sequence[str]], str]] = {"yaml": yaml_text, "toml": toml_text, "json": json_text}
