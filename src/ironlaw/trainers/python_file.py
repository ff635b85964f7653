"""Python recipes as settings: the syntax tree is read, nothing is executed."""

from __future__ import annotations

import ast
import operator
from collections.abc import Iterator
from typing import Any

from ironlaw.trainers.entries import DEEPEST, Entry, Parsed, Unresolved, counted, wrong

_ARITHMETIC = {
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.Div: operator.truediv, ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
}  # fmt: skip
LARGEST = 1e18


def parse_python(text: str, name: str, recipe: str = "") -> Parsed:
    """The assignments of a module, or of one function that makes a configuration; ``recipe`` names the function where there are several."""
    try:
        tree = ast.parse(text)
    except SyntaxError as error:
        raise wrong(name, error.lineno or 1, f"not valid Python: {error.msg}") from None
    except (ValueError, RecursionError, MemoryError) as error:
        raise wrong(name, 1, f"not valid Python: {str(error)[:100] or 'nested too deep'}") from None
    reader = _Reader()
    try:
        entries = counted(reader.read(_statements(tree, name, recipe)), name)
    except RecursionError:
        raise wrong(name, 1, "Python that is nested too deep") from None
    last = {entry.key: entry for entry in entries}  # a later assignment counts
    return Parsed(name, "python", tuple(last.values()))


def _statements(tree: ast.Module, name: str, recipe: str) -> list[ast.stmt]:
    """The statements to read: those of the module, and of its only function, or of the one that is asked for."""
    functions = {node.name: node for node in tree.body if isinstance(node, ast.FunctionDef)}
    top = [node for node in tree.body if not isinstance(node, ast.FunctionDef)]
    if recipe:
        if recipe not in functions:
            raise wrong(name, 1, f"no function {recipe[:60]}; there are {', '.join(list(functions)[:12]) or 'none'}")
        return [*top, *functions[recipe].body]
    makers = [node for node in functions.values() if any(isinstance(part, ast.Return) and part.value for part in ast.walk(node))]
    if len(makers) > 1 and not any(isinstance(node, (ast.Assign, ast.AnnAssign)) for node in top):
        listed = ", ".join(node.name for node in makers[:12])
        raise wrong(
            name, makers[0].lineno, f"{len(makers)} recipes: name one behind a colon, such as {name}:{makers[0].name}; there are {listed}"
        )
    return [*top, *(makers[0].body if len(makers) == 1 else [])]


class _Reader:
    """Reads statements in their order; keeps the values of plain names."""

    def __init__(self) -> None:
        self.names: dict[str, Any] = {}

    def read(self, statements: list[ast.stmt], sure: bool = True) -> Iterator[Entry]:
        """The settings that statements make; in a branch or a loop they are unresolved."""
        for node in statements:
            if isinstance(node, ast.Assign):
                for target in node.targets:
                    yield from self._assigned(target, node.value, sure)
            elif isinstance(node, ast.AnnAssign) and node.value is not None:
                yield from self._assigned(node.target, node.value, sure)
            elif isinstance(node, ast.AugAssign):
                yield from self._assigned(node.target, ast.BinOp(node.target, node.op, node.value), sure)
            elif isinstance(node, (ast.Return, ast.Expr)) and isinstance(node.value, ast.Call):
                yield from self._call(node.value, "", 0)
            elif isinstance(node, (ast.If, ast.For, ast.While, ast.With, ast.Try)):
                yield from self.read([*node.body, *getattr(node, "orelse", [])], sure and isinstance(node, ast.With))

    def _assigned(self, target: ast.expr, value: ast.expr, sure: bool) -> Iterator[Entry]:
        """The settings of one assignment."""
        key = _dotted(target)
        if not key or key.startswith("__"):
            return
        head, _, rest = key.partition(".")
        if isinstance(value, ast.Call) and not self._is_plain(value):
            yield from self._call(value, rest, 0)
            return
        found = self.value(value) if sure else Unresolved(ast.unparse(value)[:80])
        if not rest:
            self.names[head] = found
        if isinstance(found, dict):
            for name, item in found.items():
                yield Entry(f"{rest or head}.{name}", item, target.lineno, target.col_offset + 1)
            return
        yield Entry(rest or head, found, target.lineno, target.col_offset + 1)

    def _call(self, call: ast.Call, key: str, depth: int) -> Iterator[Entry]:
        """The keyword arguments of a call that makes a part of a configuration."""
        if depth > DEEPEST:
            return
        made = _dotted(call.func)
        if made and key:
            yield Entry(f"{key}.()", made, call.lineno, call.col_offset + 1)
        for one in call.args[:1] if made.rpartition(".")[2] in ("Config", "Partial") else ():
            if _dotted(one):
                yield Entry(f"{key}.()" if key else "()", _dotted(one), one.lineno, one.col_offset + 1)
        for word in call.keywords:
            if word.arg is None:
                continue
            below = f"{key}.{word.arg}" if key else word.arg
            if isinstance(word.value, ast.Call) and not self._is_plain(word.value):
                yield from self._call(word.value, below, depth + 1)
                continue
            found = self.value(word.value)
            if isinstance(found, dict):
                for name, item in found.items():
                    yield Entry(f"{below}.{name}", item, word.value.lineno, word.value.col_offset + 1)
            else:
                yield Entry(below, found, word.value.lineno, word.value.col_offset + 1)

    def _is_plain(self, call: ast.Call) -> bool:
        """True for a call without keyword arguments, which is a value that only the program knows."""
        return not call.keywords and not call.args and _dotted(call.func).islower()

    def value(self, node: ast.expr) -> Any:
        """A value that the text alone decides; else as it is written."""
        found = self._value(node)
        return Unresolved(ast.unparse(node)[:80]) if found is _UNKNOWN else found

    def _value(self, node: ast.expr) -> Any:
        if isinstance(node, ast.Constant):
            return node.value if isinstance(node.value, (str, int, float, bool, type(None))) else _UNKNOWN
        if isinstance(node, (ast.List, ast.Tuple)):
            return [self.value(item) for item in node.elts]
        if isinstance(node, ast.Dict):
            return {
                str(key.value): self.value(value)
                for key, value in zip(node.keys, node.values, strict=True)
                if isinstance(key, ast.Constant)
            }
        if isinstance(node, ast.Name):
            return self.names.get(node.id, _UNKNOWN)
        if isinstance(node, ast.Attribute):
            return _dotted(node) if _dotted(node).startswith(("torch.", "jnp.", "np.")) else _UNKNOWN
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
            number = self._value(node.operand)
            return -number if _is_number(number) else _UNKNOWN
        if isinstance(node, ast.BinOp):
            return self._computed(node)
        return _UNKNOWN

    def _computed(self, node: ast.BinOp) -> Any:
        """The result of arithmetic with known numbers of moderate size."""
        left, right = self._value(node.left), self._value(node.right)
        if not (_is_number(left) and _is_number(right)):
            return _UNKNOWN
        if isinstance(node.op, ast.Pow):
            return left**right if abs(left) <= 1024 and 0 <= right <= 6 else _UNKNOWN
        work = _ARITHMETIC.get(type(node.op))
        if work is None or (right == 0 and work not in (operator.add, operator.sub, operator.mul)):
            return _UNKNOWN
        found = work(left, right)
        return found if abs(found) < LARGEST else _UNKNOWN


_UNKNOWN = object()


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _dotted(node: ast.expr) -> str:
    """``a.b.c`` of names and attributes; "" for any other expression."""
    parts: list[str] = []
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    return ".".join([node.id, *reversed(parts)]) if isinstance(node, ast.Name) else ""
