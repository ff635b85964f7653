"""YAML as settings with lines. Nodes are composed, never constructed: a tag that would make an object is an error."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ironlaw.trainers.entries import DEEPEST, Entry, Parsed, counted, interpolated, wrong

LARGEST = 300_000  # bytes: a file of people; the parser takes a second for each 100 kB
_PLAIN = ("null", "bool", "int", "float", "str", "map", "seq", "timestamp")


def parse_yaml(text: str, name: str) -> Parsed:
    """The settings of a YAML text, by the rules of PyYAML, which most trainers read it with: ``1e-5`` is a text, ``yes`` is true."""
    import yaml

    if len(text) > LARGEST:
        raise wrong(name, 1, f"{len(text):,} characters of YAML; the limit is {LARGEST:,}")
    loader = yaml.SafeLoader(text)
    try:
        root = loader.get_single_node()
        entries = counted(_entries(loader, root, "", name, 0), name) if root is not None else ()
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        why = error.problem or error.context or "cannot be read"
        raise wrong(name, mark.line + 1 if mark else 1, f"not valid YAML: {str(why)[:200]}") from None
    except (yaml.YAMLError, ValueError) as error:
        raise wrong(name, 1, f"not valid YAML: {str(error).partition(chr(10))[0][:200]}") from None
    except RecursionError:
        raise wrong(name, 1, "YAML that is nested too deep") from None
    finally:
        loader.dispose()
    return Parsed(name, "yaml", interpolated(entries))


def _entries(loader: Any, node: Any, key: str, name: str, depth: int) -> Iterator[Entry]:
    """The settings below a node; an alias counts each time that it is used."""
    line = node.start_mark.line + 1
    if depth > DEEPEST:
        raise wrong(name, line, f"nested deeper than {DEEPEST} levels")
    kind = node.tag.removeprefix("tag:yaml.org,2002:")
    if kind not in _PLAIN:
        raise wrong(name, line, f"the tag {node.tag[:60]} would make an object: only plain values are read")
    if node.id == "mapping" and node.value:
        seen: set[str] = set()
        for one, value in _pairs(node, name, depth):
            word = str(one.value) if one.id == "scalar" else ""
            if not word:
                raise wrong(name, one.start_mark.line + 1, "a key that is no word")
            if word in seen:
                raise wrong(name, one.start_mark.line + 1, f"{word[:60]} is given twice in one table")
            seen.add(word)
            for entry in _entries(loader, value, f"{key}.{word}" if key else word, name, depth + 1):
                own = entry.key.count(".") == (f"{key}.{word}" if key else word).count(".")
                yield entry._replace(line=one.start_mark.line + 1, column=one.start_mark.column + 1) if own else entry
    elif node.id == "sequence" and any(item.id != "scalar" for item in node.value):
        for item in node.value:
            yield from _entries(loader, item, f"{key}[]", name, depth + 1)
    else:
        yield Entry(key, _value(loader, node, name), line, node.start_mark.column + 1)


def _pairs(node: Any, name: str, depth: int) -> Iterator[tuple[Any, Any]]:
    """The keys and values of a table; those that ``<<`` merges come where the table itself has no such key."""
    own = [(key, value) for key, value in node.value if key.value != "<<"]
    given = {key.value for key, _ in own if key.id == "scalar"}
    yield from own
    for key, value in node.value:
        if key.value == "<<":
            if value.id != "mapping" or depth > DEEPEST:
                raise wrong(name, key.start_mark.line + 1, "<< merges something that is no table")
            yield from ((one, other) for one, other in _pairs(value, name, depth + 1) if one.value not in given)


def _value(loader: Any, node: Any, name: str) -> Any:
    """The plain value of a node: a number, a text, true, false, None, an empty table, or a list of them."""
    if node.id == "sequence":
        return [_value(loader, item, name) for item in node.value]
    if node.id == "mapping":
        return {}
    kind = node.tag.rpartition(":")[2]
    if kind in ("str", "timestamp"):
        return node.value
    if kind == "int" and len(node.value) > 30:
        raise wrong(name, node.start_mark.line + 1, f"a number of {len(node.value)} digits")
    try:
        return loader.construct_object(node)
    except ValueError as error:
        raise wrong(name, node.start_mark.line + 1, f"not valid YAML: {error}") from None
