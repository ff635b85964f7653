"""Read the arguments in a launch script or command line as text. Nothing is executed.

Words are split as a shell splits them: quotes, comments, line continuations, ``NAME=value`` and ``NAME=(...)`` with
``$NAME``, ``${NAME[@]}`` and ``${NAME:-default}``. Assignments apply in the order of the text, also inside ``if`` and loops.
What only a running shell can compute (``$(...)``, ``$((...))``, names never assigned) stays as it is written.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from ironlaw.errors import InputError

MAX_CHARACTERS = 1_000_000
MAX_ADDED = 100_000_000
_BREAK = "\n"  # a word that ends a command
_ASSIGNMENT = re.compile(r"([A-Za-z_]\w*)(\+?)=(.*)", re.DOTALL)
_VARIABLE = re.compile(r"\$(?:(\w+)|\{(\w+)(?:\[[@*]\])?(?::?-([^{}]*))?\})")
_LITERAL = "\0"  # replaces a dollar sign between single quotes


def read_command(text: str) -> dict[str, Any]:
    """The arguments of a command: ``--flag value``, ``--flag=value``, a list for many values, True for none.

    Where the text runs a Python file, the arguments are those after it (those before it belong to the launcher); else all.

    >>> read_command("torchrun --nproc_per_node 8 pretrain_gpt.py --num-layers 32 \\\\\\n  --bf16  # two bytes")
    {'--num-layers': '32', '--bf16': True}
    """
    if len(text) > MAX_CHARACTERS:
        raise InputError(f"launch script of {len(text):,} characters; the limit is {MAX_CHARACTERS:,}")
    commands = list(_commands(text))
    launched = [c[at + 1 :] for c in commands if (at := _program_position(c)) is not None]
    arguments: dict[str, Any] = {}
    for words in launched or commands:
        arguments.update(_arguments(words))
    return arguments


def read_launch(text: str) -> tuple[dict[str, Any], list[str], dict[str, Any]]:
    """The arguments of the launcher, the words that name the program, and the program's arguments, of the last training that a text starts.

    The program is a Python file, what ``-m`` names, or a trainer's own command with its action.

    >>> read_launch("torchrun --nproc_per_node 8 train.py --bf16")
    ({'--nproc_per_node': '8'}, ['torchrun', 'train.py'], {'--bf16': True})
    >>> read_launch("NPROC_PER_NODE=4 swift sft --lora_rank 8")
    ({'--nproc_per_node': '4'}, ['swift', 'sft'], {'--lora_rank': '8'})
    """
    if len(text) > MAX_CHARACTERS:
        raise InputError(f"launch script of {len(text):,} characters; the limit is {MAX_CHARACTERS:,}")
    found: tuple[dict[str, Any], list[str], dict[str, Any]] = {}, [], {}
    variables = {f"--{name.lower()}": value for name, value in re.findall(r"\b(NPROC_PER_NODE|NNODES)=(\d+)", text)}
    for words in _commands(text):
        at, taken = _launched_at(words)
        if at is None:
            continue
        before, after = words[:at], words[at + taken :]
        names = words[at : at + taken] if taken > 1 else [words[0], words[at]]
        values = [word for word in after[:1] if word.endswith((".yaml", ".yml", ".json", ".toml"))]
        found = {**variables, **_arguments(before)}, [*names, *values], {**_arguments(after), **_overrides(after)}
    return found


def _launched_at(words: list[str]) -> tuple[int | None, int]:
    """Where the words of a command name the program that it starts, and how many words do."""
    at = _program_position(words)
    if at is None and "-m" in words[:-1]:
        at = words.index("-m") + 1
    if at is not None:
        return at, 1
    return next((i for i, word in enumerate(words) if word.rpartition("/")[2] in TRAINER_COMMANDS), None), 2


TRAINER_COMMANDS = ("swift", "megatron", "llamafactory-cli", "axolotl", "litgpt", "trl", "tune")


def _overrides(words: list[str]) -> dict[str, str]:
    """Hydra's ``key=value`` words."""
    return dict(word.split("=", 1) for word in words if re.match(r"\+{0,2}[A-Za-z_][\w.]*=", word))


def _program_position(words: list[str]) -> int | None:
    return next((i for i, word in enumerate(words) if word.endswith(".py") and not word.startswith("-")), None)


def _arguments(words: list[str]) -> dict[str, Any]:
    """The arguments of a command's words, by name; a repeated value makes a list."""
    arguments: dict[str, Any] = {}
    name = ""
    for word in words:
        if re.match(r"--?[A-Za-z]", word):
            name, equals, value = word.partition("=")
            arguments[name] = value if equals else True
        elif name:
            before = arguments[name]
            if isinstance(before, list):
                before.append(word)
            else:
                arguments[name] = word if before is True else [before, word]
    return arguments


def _commands(text: str) -> Iterator[list[str]]:
    """Commands as lists of words, with variables replaced and assignments removed."""
    variables: dict[str, str] = {}
    budget = [MAX_CHARACTERS]  # characters that variables may add: each can double the text
    added = [MAX_ADDED]
    words: list[str] = []
    array: list[str] | None = None
    name, adds = "", False
    for word, quoted in _words(text):
        if array is not None:
            if word == ")" and not quoted:
                variables[name] = " ".join(([_before(variables, name, added)] if adds else []) + array)
                array = None
            elif word != _BREAK or quoted:
                array += _expand_word(word, quoted, variables, budget)
            continue
        if word == _BREAK and not quoted:
            if words:
                yield words
            words = []
            continue
        assigned = None if words and words != ["export"] else _ASSIGNMENT.fullmatch(word)
        if assigned is None:
            words += _expand_word(word, quoted, variables, budget)
            continue
        name, adds = assigned[1], assigned[2] == "+"
        if assigned[3] == "(" and not quoted:
            array = []
        else:
            value = _expand(assigned[3], variables, budget)
            variables[name] = _before(variables, name, added) + value if adds else value
    if words:
        yield words


def _before(variables: dict[str, str], name: str, added: list[int]) -> str:
    """The value of a variable that ``+=`` adds to; ``added`` limits the characters that are copied for all of them."""
    before = variables.get(name, "")
    added[0] -= len(before)
    if added[0] < 0:
        raise InputError(f"the launch script adds to {name[:40]} too often: += copies more than {MAX_ADDED:,} characters")
    return before


def _expand_word(word: str, quoted: bool, variables: dict[str, str], budget: list[int]) -> list[str]:
    """A word with its variables replaced: one word where it was quoted, else split at blanks; arrays are always split."""
    value = _expand(word, variables, budget)
    if "$" not in word or (quoted and "[@]" not in word) or "$(" in word:
        return [value.replace(_LITERAL, "$")]
    return [v.replace(_LITERAL, "$") for v in value.split()]


def _expand(word: str, variables: dict[str, str], budget: list[int]) -> str:
    """A word with its variables replaced; ``budget`` limits the characters of all replacements."""

    def value(match: re.Match[str]) -> str:
        name = match[1] or match[2]
        text = variables.get(name, match[3] if match[3] is not None else match[0])
        budget[0] -= len(text)
        if budget[0] < 0:
            raise InputError(f"variables of the launch script grow to more than {MAX_CHARACTERS:,} characters")
        return text

    return _VARIABLE.sub(value, word)


_LEXEME = re.compile(
    r"(?P<join>\\\r?\n)|\\(?P<escaped>[^\r\n])|'(?P<single>[^']*)'?|\"(?P<double>(?:\\.|[^\"\\])*)\"?|(?P<inner>\$\()"
    r"|(?P<array>=\()|(?P<comment>#[^\n]*)|(?P<blank>[ \t\r]+)|(?P<redirect>\d*[<>]+&?\d*)|(?P<close>\))|(?P<end>[\n;&|(])"
    r"|(?P<plain>[^\\'\"$#\s;&|()<>=]+|.)",
    re.DOTALL,
)
_SEPARATORS = {"comment", "blank", "redirect", "close", "end"}


def _words(text: str) -> Iterator[tuple[str, bool]]:
    """(word, was quoted) of a shell text; the end of a command is an unquoted line break."""
    word: list[str] = []
    quoted, at = False, 0
    while at < len(text):
        match = _LEXEME.match(text, at)
        if match is None:  # never: the last alternative matches any character
            break
        kind, at = str(match.lastgroup), match.end()
        if kind == "inner":
            at = _find_closing(text, at)
            word.append(text[match.start() : at])
        elif kind == "array" and not quoted:
            yield "".join(word) + "=(", False
            word = []
        elif kind in _SEPARATORS and not (kind in ("comment", "redirect") and word and not match[0].startswith((">", "<"))):
            if word:
                yield "".join(word), quoted
            word, quoted = [], False
            if kind not in ("blank", "comment"):
                yield (")" if kind == "close" else _BREAK), False
        else:
            quoted = quoted or kind in ("single", "double")
            word += _part(kind, match)
    if word:
        yield "".join(word), quoted


def _part(kind: str, match: re.Match[str]) -> list[str]:
    """The text that a lexeme adds to a word; nothing where a line is continued."""
    if kind == "join":
        return []
    if kind in ("escaped", "single"):
        return [str(match[kind]).replace("$", _LITERAL)]
    if kind == "double":
        return [re.sub(r"\\([\\\"$`\n])", lambda m: {"$": _LITERAL, "\n": ""}.get(m[1], m[1]), match["double"])]
    return [match[0]]


def _find_closing(text: str, at: int) -> int:
    """The position after the parenthesis that closes the one opened before ``at``."""
    depth = 1
    while at < len(text) and depth:
        depth += (text[at] == "(") - (text[at] == ")")
        at += 1
    return at
