"""JSON, TOML and shell as settings with lines."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from ironlaw.errors import InputError
from ironlaw.files import parse_json, parse_toml
from ironlaw.launch.shell import read_launch
from ironlaw.trainers.entries import DEEPEST, Entry, Parsed, Unresolved, counted, flattened, interpolated, wrong

_TOKEN = re.compile(r'"(?:[^"\\\n]|\\.)*"|[{}\[\]:,\n]')
_TABLE = re.compile(r"^\s*\[\[?\s*([^\[\]]+?)\s*\]\]?\s*(?:#.*)?$")
_KEY = re.compile(r"""^\s*((?:[\w-]+|"[^"]*"|'[^']*')(?:\s*\.\s*(?:[\w-]+|"[^"]*"|'[^']*'))*)\s*=""")


def parse_json_file(text: str, name: str) -> Parsed:
    """The settings of a JSON text."""
    try:
        tree = parse_json(text)
    except RecursionError:
        raise wrong(name, 1, "JSON that is nested too deep") from None
    except ValueError as error:
        found = re.search(r"line (\d+)", str(error))
        raise wrong(name, int(found[1]) if found else 1, f"not valid JSON: {str(error).partition(': line')[0][:200]}") from None
    if not isinstance(tree, dict):
        raise wrong(name, 1, "JSON that is no table of settings")
    _check_depth(tree, name)
    places = _json_places(text, name)
    return Parsed(name, "json", counted(flattened(tree, "", lambda key: places.get(key, (1, 1))), name))


def _check_depth(tree: Any, name: str) -> None:
    """Refuse tables that are nested deeper than any configuration."""
    level = [tree]
    for _ in range(DEEPEST):
        level = [item for node in level for item in (node.values() if isinstance(node, dict) else node if isinstance(node, list) else ())]
        if not level:
            return
    raise wrong(name, 1, f"nested deeper than {DEEPEST} levels")


def _json_places(text: str, name: str) -> dict[str, tuple[int, int]]:
    """Line and column of every key of valid JSON; a key that stands twice in one table is an error."""
    places: dict[str, tuple[int, int]] = {}
    stack: list[str] = []
    seen: list[set[str]] = []
    line, begins, word, at = 1, 0, "", (1, 1)
    for match in _TOKEN.finditer(text):
        token = match[0]
        if token == "\n":
            line, begins = line + 1, match.end()
        elif token in "{[":
            stack.append(word if token == "{" else f"{word}[]")
            word = stack[-1]
            seen.append(set())
        elif token in "}]":
            word = stack.pop() if stack else ""
            seen.pop()
        elif token == ":":
            key = word.rpartition("\0")[2]
            above = stack[-1] if stack else ""
            if key in seen[-1]:
                raise wrong(name, at[0], f"{key[:60]} is given twice in one table")
            seen[-1].add(key)
            word = f"{above}.{key}" if above else key
            places.setdefault(word, at)
        elif token == ",":
            word = stack[-1] if stack else ""
        else:
            word, at = "\0" + token[1:-1], (line, match.start() - begins + 1)
    return places


def parse_toml_file(text: str, name: str) -> Parsed:
    """The settings of a TOML text."""
    try:
        tree = parse_toml(text, name)
    except InputError as error:
        found = re.search(r"at line (\d+)", str(error))
        raise wrong(name, int(found[1]) if found else 1, str(error).partition(": ")[2]) from None
    places: dict[str, tuple[int, int]] = {}
    table = ""
    for number, line in enumerate(text.splitlines(), 1):
        if found := _TABLE.match(line):
            table = _bare(found[1])
        elif found := _KEY.match(line):
            key = _bare(found[1])
            places.setdefault(f"{table}.{key}" if table else key, (number, found.start(1) + 1))
    return Parsed(name, "toml", counted(flattened(tree, "", lambda key: places.get(key, (1, 1))), name))


def _bare(key: str) -> str:
    return ".".join(part.strip().strip("\"'") for part in key.split("."))


def parse_shell(text: str, name: str) -> Parsed:
    """The arguments of the trainer that a script starts, and those of its launcher."""
    try:
        launcher, program, arguments = read_launch(text)
    except InputError as error:
        raise wrong(name, 1, str(error)) from None
    lines = text.splitlines()

    def entries(found: dict[str, Any]) -> Iterator[Entry]:
        for flag, value in found.items():
            at = next((number for number, line in enumerate(lines, 1) if flag in line), 1)
            yield Entry(flag.lstrip("-+").replace("-", "_"), _plain(value), at)

    return Parsed(name, "shell", interpolated(counted(entries(arguments), name)), counted(entries(launcher), name), tuple(program))


def _plain(value: Any) -> Any:
    """A word of a shell as the value that it spells; one that holds an expansion is unresolved."""
    if isinstance(value, list):
        return [_plain(item) for item in value]
    if value is True or not isinstance(value, str):
        return value
    if "$" in value or "`" in value:
        return Unresolved(value)
    word = {"true": True, "false": False, "none": None, "null": None}
    if value.lower() in word:
        return word[value.lower()]
    for kind in (int, float):
        try:
            return kind(value) if len(value) < 30 else value
        except ValueError:
            continue
    return value
