"""The formula of a law as data: its tokens, the steps it names, what it says of its inputs, and the branch of a maximum that won.

The formula is the first text between double backticks in the docstring of a law. It is written as people write products: side by side.
``a b / c`` is ``(a b) / c``. A name with a bracket right behind it is a function, ``f(x)``; with a space between them it is a product.
A quantity that is no input is a step, which the docstring explains: ``name`` is ``formula``.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from typing import Any, NamedTuple

_TOKEN = re.compile(r"\s*(?:(?P<number>\d+(?:\.\d+)?(?:e-?\d+)?)|(?P<name>[A-Za-z_]\w*)|(?P<sign>[-+*/^(),]))")
_INPUT = re.compile(r"^ {8}(\w+) \[([^\]]*)\]: (.+(?:\n {12,}.+)*)", re.MULTILINE)
_STEP = re.compile(r"``(\w+)(?:`` is ``| = )([^`]+)``")
_SIGNS = {"+": lambda a, b: a + b, "-": lambda a, b: a - b, "*": lambda a, b: a * b, "/": lambda a, b: a / b, "^": lambda a, b: a**b}
_FUNCTIONS: dict[str, Callable[..., float]] = {
    "ceil": math.ceil, "floor": math.floor, "log2": math.log2, "sqrt": math.sqrt, "cbrt": math.cbrt,
}  # fmt: skip
_CHOICES: dict[str, Callable[..., float]] = {"max": max, "min": min}


class Token(NamedTuple):
    """A piece of a formula: ``kind`` is number, input, step, function or sign. A product that is written side by side has its ``*``."""

    kind: str
    text: str


class Node(NamedTuple):
    """A part of a formula that can be computed: a number, a name, a sign with two parts, or a function of its parts."""

    kind: str
    text: str
    parts: tuple[Node, ...]
    written: str  # its text in the formula


class Branch(NamedTuple):
    """The outermost maximum or minimum of a formula in one row: its branches as they are written, with their values, and the winner."""

    of: str
    won: str
    values: dict[str, float]


def formula_text(law: Callable[..., Any] | None) -> str:
    """The formula of a law: the first text between double backticks in its docstring, or else the first line of it.

    >>> from ironlaw.law.kernels import intensity
    >>> formula_text(intensity)
    'flop / traffic'
    """
    doc = (law.__doc__ or "") if law else ""
    start = doc.find("``")
    return " ".join(doc[start + 2 : doc.find("``", start + 2)].split()) if start >= 0 else doc.strip().split("\n")[0]


@cache
def sentence(law: Callable[..., Any]) -> str:
    """What a law says, without its formula.

    >>> from ironlaw.law.kernels import intensity
    >>> sentence(intensity)
    'Operations for each byte moved'
    """
    first = (law.__doc__ or "").strip().partition("\n")[0].partition("``")[0]
    return " ".join(first.split()).rstrip(":;,. ")


@cache
def condition(law: Callable[..., Any]) -> str:
    """What the docstring of a law adds to its formula in the same sentence; "" where it adds nothing.

    >>> from ironlaw.law.activations import checkpoint
    >>> condition(checkpoint)
    'over tp with sp'
    """
    paragraph = " ".join((law.__doc__ or "").strip().partition("\n\n")[0].split())
    return paragraph.split("``", 2)[2].strip(" ,;.") if paragraph.count("``") > 1 else ""


@cache
def inputs_of(law: Callable[..., Any]) -> Mapping[str, tuple[str, str]]:
    """The unit of every input of a law, and what it is, from the docstring.

    >>> from ironlaw.law.kernels import intensity
    >>> inputs_of(intensity)["flop"]
    ('FLOP', 'operations, >= 0')
    """
    return {name: (unit, " ".join(text.split())) for name, unit, text in _INPUT.findall(law.__doc__ or "")}


@cache
def steps_of(law: Callable[..., Any]) -> Mapping[str, str]:
    """The quantities between inputs and result that the docstring of a law explains, with their formulas.

    >>> from ironlaw.law.overlap import exposed_beside_idle
    >>> steps_of(exposed_beside_idle)
    {'overlapped': 'max(compute + slowdown min(compute, communication), communication)'}
    """
    return {name: " ".join(text.split()) for name, text in _STEP.findall(law.__doc__ or "")}


@cache
def symbols_of(law: Callable[..., Any]) -> Mapping[str, str]:
    """The letters of a formula that stand for an input, as the only input has one whose description writes the letter.

    >>> from ironlaw.law.activations import checkpoint
    >>> symbols_of(checkpoint)
    {'t': 'tokens', 'h': 'hidden_size', 'e': 'bytes_per_element'}
    """
    inputs, steps = inputs_of(law), steps_of(law)
    names = dict.fromkeys(text for kind, text, _, _ in lexed(formula_text(law)) or () if kind == "name")
    stands = {name: [key for key, (_, text) in inputs.items() if re.search(rf"(?<![\w.]){name}(?![\w(])", text)] for name in names}
    return {name: keys[0] for name, keys in stands.items() if len(keys) == 1 and name not in inputs and name not in steps}


def lexed(text: str) -> list[tuple[str, str, int, int]] | None:
    """(kind, text, start, end) of the pieces of a formula; None where it has a sign of another grammar."""
    found, at = [], 0
    while at < len(text.rstrip()):
        match = _TOKEN.match(text, at)
        if match is None:
            return None
        kind = str(match.lastgroup)
        found.append((kind, match.group(kind), match.start(kind), match.end()))
        at = match.end()
    return found


def tokens(text: str, inputs: Mapping[str, Any], steps: Mapping[str, Any]) -> list[Token]:
    """The pieces of a formula in order; one piece of kind ``text`` where it is not in the grammar.

    >>> [token.text for token in tokens("2 (n - 1) / n", {"n": 8}, {})]
    ['2', '*', '(', 'n', '-', '1', ')', '/', 'n']
    """
    pieces = lexed(text)
    if pieces is None:
        return [Token("text", text)]
    made: list[Token] = []
    for at, (kind, word, _, end) in enumerate(pieces):
        if at and _is_product(pieces[at - 1], pieces[at]):
            made.append(Token("sign", "*"))
        called = text[end : end + 1] == "("
        name = "function" if called else "input" if word in inputs else "step" if word in steps else "symbol"
        made.append(Token(name if kind == "name" else kind, word))
    return made


def _is_product(left: tuple[str, str, int, int], right: tuple[str, str, int, int]) -> bool:
    """True where two neighbours are multiplied: a value beside a value, unless the left one is the name of a function."""
    ends = left[0] != "sign" or left[1] == ")"
    begins = right[0] != "sign" or right[1] == "("
    return ends and begins and not (left[0] == "name" and right[1] == "(" and left[3] == right[2])


class _Parser:
    """Reads a formula by the rules of the module's docstring."""

    def __init__(self, text: str) -> None:
        self.text, self.pieces, self.at = text, lexed(text) or [], 0

    def peek(self) -> tuple[str, str, int, int] | None:
        return self.pieces[self.at] if self.at < len(self.pieces) else None

    def take(self, sign: str) -> bool:
        """Step over a sign where it comes next."""
        found = self.peek()
        if found is None or found[:2] != ("sign", sign):
            return False
        self.at += 1
        return True

    def node(self, kind: str, text: str, parts: tuple[Node, ...], first: int) -> Node:
        """A node that begins at the piece ``first`` and ends before the next."""
        written = self.text[self.pieces[first][2] : self.pieces[self.at - 1][3]]
        return Node(kind, text, parts, written)

    def sum(self) -> Node:
        first, made = self.at, self.product()
        while (found := self.peek()) and found[1] in ("+", "-"):
            self.at += 1
            made = self.node("sign", found[1], (made, self.product()), first)
        return made

    def product(self) -> Node:
        first, made = self.at, self.power()
        while found := self.peek():
            if found[1] in ("*", "/"):
                self.at += 1
                made = self.node("sign", found[1], (made, self.power()), first)
            elif _is_product(self.pieces[self.at - 1], found):
                made = self.node("sign", "*", (made, self.power()), first)
            else:
                break
        return made

    def power(self) -> Node:
        first = self.at
        if self.take("-"):
            return self.node("sign", "-", (Node("number", "0", (), "0"), self.power()), first)
        made = self.atom()
        return self.node("sign", "^", (made, self.power()), first) if self.take("^") else made

    def atom(self) -> Node:
        first, found = self.at, self.peek()
        if found is None:
            raise ValueError(self.text)
        self.at += 1
        if found[:2] == ("sign", "("):
            made = self.sum()
            if not self.take(")"):
                raise ValueError(self.text)
            return made
        if found[0] == "sign":
            raise ValueError(self.text)
        following = self.peek()
        if found[0] == "name" and following and following[1] == "(" and following[2] == found[3]:
            self.at += 1
            parts = [self.sum()]
            while self.take(","):
                parts.append(self.sum())
            if not self.take(")"):
                raise ValueError(self.text)
            return self.node("function", found[1], tuple(parts), first)
        return self.node(found[0], found[1], (), first)


@cache
def parsed(text: str) -> Node | None:
    """A formula as a tree; None where it is not in the grammar.

    >>> parsed("a b / c").parts[0].written
    'a b'
    """
    parser = _Parser(text)
    if not parser.pieces:
        return None
    try:
        node = parser.sum()
    except ValueError:
        return None
    return node if parser.peek() is None else None


def computed(node: Node, values: Mapping[str, Any], law: Callable[..., Any] | None = None) -> float:
    """The value of a formula from those of its inputs; a function is one of mathematics, or a law of the module of ``law``.

    A quantity that is neither an input nor a step that can be computed raises KeyError.

    >>> computed(parsed("2 (n - 1) / n"), {"n": 8.0})
    1.75
    """
    if node.kind == "number":
        return float(node.text)
    if node.kind == "name":
        name = node.text if law is None else symbols_of(law).get(node.text, node.text)
        if name in values:
            return float(values[name])
        step = parsed(steps_of(law)[node.text]) if law else None
        if step is None:
            raise KeyError(node.text)
        return computed(step, values, law)
    parts = [computed(part, values, law) for part in node.parts]
    if node.kind == "sign":
        return float(_SIGNS[node.text](*parts))
    known = _CHOICES.get(node.text) or _FUNCTIONS.get(node.text) or getattr(law, "__globals__", {})[node.text]
    return float(known(*parts))


def _choices(node: Node) -> Iterator[Node]:
    """The maxima and minima of a formula, outermost first."""
    if node.kind == "function" and node.text in _CHOICES and len(node.parts) > 1:
        yield node
    for part in node.parts:
        yield from _choices(part)


@cache
def has_branches(law: Callable[..., Any]) -> bool:
    """True for a law whose formula has a maximum or minimum of several quantities, itself or in the steps that it names."""
    return _choice_of(law) is not None


@cache
def _choice_of(law: Callable[..., Any]) -> Node | None:
    """The outermost maximum or minimum of the formula of a law, or of the first of its steps that has one."""
    steps = steps_of(law)
    named = [steps[name] for name in re.findall(r"\w+", formula_text(law)) if name in steps]
    trees = [tree for text in (formula_text(law), *named) if (tree := parsed(text))]
    return next((choice for tree in trees for choice in _choices(tree)), None)


def branch_of(law: Callable[..., Any], values: Mapping[str, Any]) -> Branch | None:
    """Which branch of its outermost maximum or minimum a law took; None where it has none or one of them cannot be computed.

    >>> from ironlaw.law.overlap import exposed
    >>> branch_of(exposed, {"communication": 5.5, "window": 4.0})
    Branch(of='max', won='communication - window', values={'0': 0.0, 'communication - window': 1.5})
    """
    choice = _choice_of(law)
    if choice is None:
        return None
    try:
        found = {part.written: computed(part, values, law) for part in choice.parts}
    except (KeyError, TypeError, ValueError, ZeroDivisionError, OverflowError):
        return None
    if not all(math.isfinite(value) for value in found.values()):
        return None
    won = (max if choice.text == "max" else min)(found, key=lambda name: found[name])
    return Branch(choice.text, won, found)
