"""Write ``src/ironlaw/schemas/VERB.json``: the JSON Schema of what every verb prints with ``--json``.

``python tools/schemas.py`` asks every command that the documentation and the help texts show, and random questions of every verb, and
writes a schema that holds all answers; tables and columns that no answer has come from the code of the verb. ``--only VERB`` writes one.
``--words`` asks nothing: it writes the definitions and keys that all schemas share, and gives keys of estimate, plan and diagnose that have
no description the words of ``tools/schemas.toml``.
``--check COUNT`` writes nothing: it asks other random questions, names every answer that breaks its schema, and exits with 1 if there is one.

Descriptions of keys are the titles of columns, and else the lines of ``tools/schemas.toml``.
"""

from __future__ import annotations

import argparse
import ast
import contextlib
import json
import re
import sys
import tempfile
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import same_answers
from ironlaw import interface
from ironlaw.catalog.sourced import GRADES
from ironlaw.cli.main import VERBS
from ironlaw.errors import codes
from ironlaw.questions.answer import si_unit
from ironlaw.report import answer as report
from ironlaw.shown import SCHEMA_VERSION
from ironlaw.terms import BOUNDS, MEMORY_KINDS

ROOT = Path(__file__).resolve().parents[1]
SCHEMAS = ROOT / "src" / "ironlaw" / "schemas"
WORDS = tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))
VERBS_WITH_SCHEMA = [name for name in interface.names() if name in VERBS]
OTHERS = ("catalog", "check", "read", "runs", "validate")  # commands that are no question: tools/check_schemas.py writes their schemas
ANSWERS_LIKE = {"again": "diff"}  # verbs whose answers have the tables of another verb
RANDOM = 400  # questions beside those that are shown
COMMON = ("schema_version", "tool_version", "calibration_version", "catalog_hash", "assumptions", "warnings")
KEY = re.compile(r"[a-z][a-z0-9_]*")
TEXT, NUMBER = {"type": "string"}, {"type": ["number", "null"]}
DEFS: dict[str, Any] = {
    "term": {
        "description": "one number of the breakdown: the sum of its parts times `times`, or what its law gives",
        "type": "object",
        "properties": {
            "name": {"type": "string", "description": "label; see ironlaw VERB --explain"},
            "path": {"type": "string", "description": "labels from the root down, joined by /; --explain takes it"},
            "value": {"type": ["number", "null"], "description": "in `unit`; null where it is not finite"},
            "unit": {"type": "string", "description": "SI unit"},
            "total": {"type": ["number", "null"], "description": "what it adds to its root: its value times `times` of all nodes above it"},
            "kind": {"enum": [*BOUNDS, *MEMORY_KINDS, None], "description": "roof of a time, or kind of memory; null where it mixes several"},
            "kinds": {"type": "object", "additionalProperties": NUMBER, "description": "total by kind, where it mixes several"},
            "law": {"type": ["string", "null"], "description": "function of the formula, on the page of laws; null for a sum"},
            "branch": {"type": "string", "description": "the branch of the outermost maximum or minimum of its formula that won"},
            "times": {"type": ["number", "null"], "description": "how many times the parts count; absent: once"},
            "formula": {"type": "string", "description": "with --explain: the formula of the law"},
            "branches": {"type": "object", "additionalProperties": NUMBER, "description": "with --explain: the values of the branches"},
            "inputs": {"type": "object", "description": "with --explain: inputs of the law, values in SI with their source", "additionalProperties": {
                "type": "object",
                "properties": {
                    "value": {}, "unit": TEXT, "text": TEXT, "source": {"type": ["string", "null"]},
                    "origin": {"enum": ["record", "term", "plan", "computed"], "description": "what gave it"},
                    "from": {"type": "string", "description": "path of the term, or the column of the plan"}},
                "required": ["value", "unit", "origin"],
                "additionalProperties": False}},
            "parts": {"type": "array", "items": {"$ref": "#/$defs/term"}},
        },
        "required": ["name", "path", "value", "unit", "total", "law", "parts"],
        "additionalProperties": False,
    },
    "law": {
        "description": "one law of the terms",
        "type": "object",
        "properties": {
            "says": {"type": "string", "description": "what it gives, in words"},
            "formula": TEXT,
            "where": {"type": "string", "description": "what the law adds to its formula in words"},
            "tokens": {"description": "the formula in pieces: their kind and text; a product written side by side has its *", "type": "array", "items": {
                "type": "array", "prefixItems": [{"enum": ["number", "input", "step", "symbol", "function", "sign", "text"]}, TEXT],
                "minItems": 2, "maxItems": 2}},
            "steps": {"type": "object", "additionalProperties": TEXT, "description": "formulas of quantities that are no input"},
            "symbols": {"type": "object", "additionalProperties": TEXT, "description": "inputs that letters of the formula stand for"},
            "inputs": {"type": "object", "additionalProperties": {
                "type": "object", "properties": {"unit": TEXT, "text": TEXT}, "required": ["unit", "text"], "additionalProperties": False}},
            "docs": {"type": ["string", "null"], "description": "page and anchor that describe it"},
        },
        "required": ["says", "formula", "where", "tokens", "steps", "symbols", "inputs", "docs"],
        "additionalProperties": False,
    },
    "source": {
        "description": "where a number comes from",
        "type": "object",
        "properties": {"title": TEXT, "url": TEXT, "read": {"type": "string", "description": "ISO date, or recalled"},
                       "grade": {"enum": list(GRADES)}},
        "required": ["title", "url", "read", "grade"],
        "additionalProperties": False,
    },
    "assumption": {
        "description": "an option that was left open, or a reading of one that was given",
        "type": "object",
        "properties": {
            "name": TEXT, "value": {}, "origin": {"enum": ["chosen", "default", "given", "held", "override"]},
            "option": {"type": "string", "description": "the flag that sets it"},
            "unit": {"type": "string", "description": "of a value that is a number"},
            "source": {"type": "string", "description": "of a default: the rule or the record that decides it"}},
        "required": ["name", "value", "origin"],
        "additionalProperties": False,
    },
    "sentence": {
        "description": "a sentence of the headline, with the values that it tells",
        "type": "object",
        "properties": {
            "code": {"type": "string", "description": "what it tells; answer: the first, detail: a further one"},
            "text": {"type": "string", "description": "what the page prints"},
            "values": {"type": "object", "description": "values that it tells, in SI units"},
        },
        "required": ["code", "text", "values"],
        "additionalProperties": False,
    },
    "warning": {
        "description": "what the user should know, with the values from which its sentence was made; see docs/warnings.md",
        "type": "object",
        "properties": {
            "code": {"type": "string", "description": "which warning it is; does not change with the words of the sentence"},
            "option": {"type": ["string", "null"], "description": "the option that it speaks of"},
            "values": {"type": "object", "description": "the numbers of the sentence in SI units, and its names"},
            "sentence": {"type": "string", "description": "what the page prints"},
            "action": {"type": "string", "description": "what to do; empty where nothing can be done"},
            "anchor": {"type": "string", "description": "the place in the documentation"},
        },
        "required": ["code", "option", "values", "sentence", "action", "anchor"],
        "additionalProperties": False,
    },
    "error": {
        "description": "why a question has no answer",
        "type": "object",
        "properties": {
            "code": {"enum": codes(), "description": "the kind of error"},
            "option": {"type": ["string", "null"], "description": "the option at fault"},
            "value": {"type": ["string", "number", "boolean", "null"], "description": "its value, as it was given"},
            "message": {"type": "string", "description": "one line that says what to change"},
            "nearest": {"type": "array", "items": TEXT, "description": "known names like the one that was given, best first"},
            "offers": {"type": "array", "description": "options with which the question has an answer", "items": {
                "type": "object", "properties": {"option": TEXT, "value": {}}, "required": ["option", "value"],
                "additionalProperties": False}},
        },
        "required": ["code", "option", "value", "message", "nearest", "offers"],
        "additionalProperties": False,
    },
    "citation": {
        "description": "one source that the answer used",
        "type": "object",
        "properties": dict.fromkeys(("key", "title", "url", "year", "read", "grade"), TEXT),
        "required": ["key", "title", "url", "year", "read", "grade"],
        "additionalProperties": False,
    },
}  # fmt: skip
FIXED: dict[str, dict[str, Any]] = {  # keys that every answer begins with, and those of every verb of questions/
    "schema_version": {"const": SCHEMA_VERSION, "description": "version of this schema; a new key does not change it"},
    "tool_version": {"type": "string", "description": "version of ironlaw"},
    "calibration_version": {"type": ["string", "null"], "description": "version of the fitted and measured constants; null: none was read"},
    "catalog_hash": {"type": ["string", "null"], "description": "digest of the catalogue's files; null: it was not read"},
    "assumptions": {"type": "array", "items": {"$ref": "#/$defs/assumption"}, "description": "what was left open, and what was taken"},
    "warnings": {"type": "array", "items": {"$ref": "#/$defs/warning"}, "description": "what the user should know"},
    "headline": {"type": "array", "items": {"$ref": "#/$defs/sentence"}, "description": "the answer in sentences, the first lines of the page"},
    "laws": {"type": "object", "additionalProperties": {"$ref": "#/$defs/law"}, "description": "with --explain: the laws of the terms, by name"},
    "explained": {"type": "array", "items": {"$ref": "#/$defs/term"}, "description": "with --explain TERM: the terms of the path or name"},
    "sources": {"type": "object", "additionalProperties": {"$ref": "#/$defs/source"}, "description": "sources of records and terms, by key"},
    "citations": {"type": "array", "items": {"$ref": "#/$defs/citation"}, "description": "with --cite: the sources that the answer used"},
}  # fmt: skip
OF_QUESTIONS: dict[str, dict[str, Any]] = {
    "title": {"type": "string", "description": "what the answer is about"},
    "feasible": {"type": "boolean", "description": "false where the answer is no (exit status 1)"},
    "asked": {"type": "object", "description": "the verb, and the options as they were given", "additionalProperties": False,
              "properties": {"verb": TEXT, "given": {"type": "object"}}, "required": ["verb", "given"]},
    "terms": {"type": "object", "additionalProperties": {"$ref": "#/$defs/term"}, "description": "how the numbers were computed, by name"},
}  # fmt: skip

ERROR: dict[str, Any] = {  # what any verb prints with --json where it refuses a question
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "$id": f"urn:ironlaw:schema:{SCHEMA_VERSION}:error",
    "title": "ironlaw VERB --json, refused",
    "description": "What every verb prints on standard output where it refuses a question; the exit status is 2 or 3.",
    "type": "object",
    "properties": {
        "schema_version": FIXED["schema_version"], "tool_version": FIXED["tool_version"], "error": {"$ref": "#/$defs/error"},
    },
    "required": ["schema_version", "tool_version", "error"],
    "additionalProperties": False,
    "$defs": {"error": DEFS["error"]},
}  # fmt: skip

_NAMES = {"type": "array", "items": {"type": "string"}}
_REASONS = {"type": "object", "additionalProperties": {"type": "string"}}
_WORD, _SWITCH, _NUMBER = {"type": "string"}, {"type": "boolean"}, {"type": ["null", "number"]}
OPTION = {  # of one option, as question/as_data has it
    "name": _WORD | {"description": "its name in Python, TOML and the header of a CSV"},
    "flag": _WORD | {"description": "its flag on the command line"},
    "heading": _WORD | {"description": "the heading of the help that it stands under"},
    "says": _WORD | {"description": "what it is, without its default"},
    "value": _WORD | {"description": "how help shows a value"},
    "takes": _NAMES | {"description": "types that Python may give"},
    "unit": _WORD | {"description": "of a bare number; 1 for a pure number"},
    "choices": _NAMES | {"description": "the only names that it may be; empty: any"},
    "least": _NUMBER | {"description": "the least number"},
    "most": _NUMBER | {"description": "the largest number"},
    "default": {"description": "its value where it is not given; null: a record, a rule or the search decides"},
    "otherwise": _WORD | {"description": "what is taken where it is not given, in words"},
    "column": _SWITCH | {"description": "whether Python may give a value for each row"},
    "records": _WORD | {"description": "the kind of record that it names"},
    "also": _NAMES | {"description": "names that other tools give it"},
    "needs": _NAMES | {"description": "options without one of which it has no effect"},
    "excludes": _REASONS | {"description": "options that it does not go with, and why"},
    "left_out": _REASONS | {"description": "verbs that do not take it, and why"},
    "since": _WORD | {"description": "the version that has it first"},
}
OPTIONS: dict[str, Any] = {  # what `ironlaw schema --options --json` prints
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "$id": f"urn:ironlaw:schema:{SCHEMA_VERSION}:options",
    "title": "ironlaw schema --options --json",
    "description": "The options of an estimate, and by verb those that only it has or reads in another way.",
    "type": "object",
    "properties": {
        "schema_version": FIXED["schema_version"], "tool_version": FIXED["tool_version"],
        "options": {"type": "object", "additionalProperties": {"type": "array", "items": {"$ref": "#/$defs/option"}}},
    },
    "required": ["schema_version", "tool_version", "options"],
    "additionalProperties": False,
    "$defs": {"option": {"type": "object", "properties": OPTION, "required": list(OPTION), "additionalProperties": False}},
}  # fmt: skip
ALONE = {"error": ERROR, "options": OPTIONS}  # schemas of no verb's answer


# Shapes of values


class Shape:
    """The values that were seen at one place."""

    def __init__(self) -> None:
        self.types: set[str] = set()
        self.known: set[str] = set()  # names in DEFS
        self.keys: dict[str, Shape] = {}
        self.items: Shape | None = None

    def add(self, value: Any) -> None:
        """See one more value."""
        if isinstance(value, dict):
            if known := kind_of(value):
                self.known.add(known)
                return
            self.types.add("object")
            for key, item in value.items():
                self.keys.setdefault(key, Shape()).add(item)
        elif isinstance(value, list):
            self.types.add("array")
            self.items = self.items or Shape()
            for item in value:
                self.items.add(item)
        else:
            kind = {bool: "boolean", str: "string", type(None): "null"}.get(type(value), "number")
            self.types.add(kind)

    def merged(self) -> Shape:
        """The shape of all values of an object whose keys are names, not words of the schema."""
        whole = Shape()
        for shape in self.keys.values():
            whole.types |= shape.types
            whole.known |= shape.known
            for key, item in shape.keys.items():
                whole.keys.setdefault(key, Shape()).join(item)
            if shape.items is not None:
                whole.items = whole.items or Shape()
                whole.items.join(shape.items)
        return whole

    def join(self, other: Shape) -> None:
        """See all that another shape has seen."""
        both = Shape()
        both.keys = {"a": self, "b": other}
        both = both.merged()
        self.types, self.known, self.keys, self.items = both.types, both.known, both.keys, both.items


def kind_of(value: dict[str, Any]) -> str:
    """The name in DEFS of an object that has its keys."""
    return next((name for name, form in DEFS.items() if set(form["required"]) <= value.keys() <= form["properties"].keys()), "")


def schema_of(shape: Shape, path: tuple[str, ...], told: dict[str, dict[str, str]], depth: int) -> dict[str, Any]:
    """The schema of a place. Objects are closed at the top and one level below it; a number may always be null."""
    if shape.known and not shape.types - {"null"}:
        refs = [{"$ref": f"#/$defs/{name}"} for name in sorted(shape.known)] + [{"type": "null"}] * ("null" in shape.types)
        return refs[0] if len(refs) == 1 else {"anyOf": refs}
    types = sorted(shape.types | ({"null"} if "number" in shape.types else set()))
    made: dict[str, Any] = {"type": types[0] if len(types) == 1 else types} if types and not shape.known else {}
    if "array" in types:
        made["items"] = schema_of(shape.items, path, told, depth) if shape.items and (shape.items.types or shape.items.known) else {}
    if "object" in types:
        if is_map(path, shape):
            inner = shape.merged()
            made["additionalProperties"] = schema_of(inner, (*path, "*"), told, depth + 1) if inner.types or inner.known else True
        else:
            made["properties"] = {key: described(item, (*path, key), told, depth + 1) for key, item in sorted(shape.keys.items())}
            made["additionalProperties"] = depth > 1
    return made


def is_map(path: tuple[str, ...], shape: Shape) -> bool:
    """True for an object whose keys are names of records, terms or options."""
    return (path and path[-1] in WORDS["maps"]["names"]) or any(not KEY.fullmatch(key) for key in shape.keys)


def described(shape: Shape, path: tuple[str, ...], told: dict[str, dict[str, str]], depth: int) -> dict[str, Any]:
    """The schema of a key, with its description and unit."""
    return {**words_of(path, told), **schema_of(shape, path, told, depth)}


def words_of(path: tuple[str, ...], told: dict[str, dict[str, str]]) -> dict[str, str]:
    """Description and unit of a key: of its column, of the longest path in the file of words, or its own words."""
    names = [name for name in path if name != "*"]
    for start in range(len(names)):
        key = ".".join(names[start:])
        if len(names) - start > 1 and key in told:
            return told[key]
        if key in WORDS["keys"]:
            text, _, unit = WORDS["keys"][key].partition(" [")
            return {"description": text, **({"unit": unit.rstrip("]")} if unit else {})}
    unit = next((unit for ending, unit in WORDS["units"].items() if names[-1] == ending or names[-1].endswith(f"_{ending}")), "")
    return {"description": names[-1].replace("_", " "), **({"unit": unit} if unit else {})}


# Answers


def questions(seed: int, count: int, shown: bool, only: str = "") -> list[tuple[tuple[str, ...], str]]:
    """The words of questions with the page that shows them."""
    verbs = {only} if only else set(VERBS_WITH_SCHEMA)
    asked: dict[tuple[tuple[str, ...], str], None] = {}
    same_answers.WORDS["shares"].update({verb: 0 for verb in VERBS_WITH_SCHEMA if verb not in same_answers.WORDS["shares"]})
    if shown:
        for command, page in same_answers.shown_commands():
            if (words := same_answers.as_question(command)) and (words[0] in verbs or ">" in words):
                asked[words, page] = None
        for command in [*WORDS["corpus"]["commands"], *_items()]:
            if (words := same_answers.as_question(command.removeprefix("ironlaw "))) and words[0] in verbs:
                asked[words, ""] = None
    draw = same_answers.Questions(seed)
    shares = {verb: share for verb, share in same_answers.WORDS["shares"].items() if share and verb in verbs}
    for verb, share in shares.items():
        for _ in range(-(-share * count // sum(shares.values()))):
            asked[tuple(draw.draw(verb)), ""] = None
    return list(asked)


def _items() -> Iterator[str]:
    """The commands of the checks of the documents' items."""
    for path in sorted((ROOT / "tests" / "data" / "items").glob("*.toml")):
        yield from (check["command"] for check in tomllib.loads(path.read_text(encoding="utf-8"))["check"])


def answers(asked: list[tuple[tuple[str, ...], str]]) -> Iterator[tuple[tuple[str, ...], Any, list[Any]]]:
    """Words, JSON and answer of every question that prints JSON, each page's questions in a folder with its files."""
    block = re.compile(r"<!-- file (\S+) *-->\n```\w+\n(.*?)^```$", re.DOTALL | re.MULTILINE)
    pages = dict.fromkeys(page for _, page in asked)
    for page in pages:
        with tempfile.TemporaryDirectory() as folder:
            path = ROOT / page
            for name, text in block.findall(path.read_text(encoding="utf-8")) if page and path.suffix == ".md" else ():
                (Path(folder) / name).parent.mkdir(parents=True, exist_ok=True)
                (Path(folder) / name).write_text(text, encoding="utf-8")
            for name in ("examples", "tests"):
                (Path(folder) / name).symlink_to(ROOT / name)
            with contextlib.chdir(folder):
                for words, _ in (item for item in asked if item[1] == page):
                    yield from _answer(words)


def _answer(words: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], Any, list[Any]]]:
    """One question; an answer that goes into a file is written there and read as well."""
    captured: list[Any] = []
    original = report.answer_data

    def capture(answer: Any, explain: bool = False) -> Any:
        captured.append(answer)
        return original(answer, explain)

    report.answer_data = capture  # type: ignore[assignment]
    try:
        told = list(words)
        target = told[told.index(">") + 1] if ">" in told else ""
        _, text = same_answers.run(told[: told.index(">")] if target else told)
    finally:
        report.answer_data = original
    if target:
        Path(target).write_text(text, encoding="utf-8")
    with contextlib.suppress(ValueError):
        yield words, json.loads(text), captured


# Code


def declared(verb: str) -> tuple[set[str], dict[str, dict[str, str]]]:
    """The names of tables, and the columns, that the code of a verb writes down."""
    folder = ROOT / "src" / "ironlaw" / "questions" / verb
    tables, columns = set(), {}
    for path in sorted(folder.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            name = getattr(getattr(node, "func", None), "id", "")
            if name in ("Table", "Column") and node.args and isinstance(node.args[0], ast.Constant):
                words = [arg.value for arg in node.args if isinstance(arg, ast.Constant)]
                if name == "Table":
                    tables.add(words[0])
                elif len(words) > 1:
                    columns[words[0]] = column_words(words[1], words[2] if len(words) > 2 else "")
    return tables, columns


def column_words(title: str, unit: str) -> dict[str, str]:
    """Description and unit of a column."""
    unit = "" if unit in ("1", "%") else unit
    return {"description": title or "text", **({"unit": unit} if unit else {})}


def schema(verb: str, shape: Shape, captured: list[Any], rows: bool) -> dict[str, Any]:
    """The schema of a verb."""
    told: dict[str, dict[str, str]] = {}
    for answer in captured:
        for table in answer.tables:
            told.setdefault(table.name, {"description": table.title})
            for column in table.columns:
                words = {"description": column.title or column.key, **({"unit": si_unit(column)} if si_unit(column) else {})}
                told.setdefault(f"{table.name}.{column.key}", words)
    of_questions = VERBS[verb][0].startswith("questions.")
    tables, columns = declared(verb) if of_questions else (set(), {})
    properties = {}
    for key, item in sorted(shape.keys.items()):
        properties[key] = {**(told.get(key) or words_of((key,), {})), **schema_of(item, (key,), told, 1)}
    for name in sorted(tables - set(properties)):
        rows_of = {key: {**words, "type": ["number", "string", "boolean", "null"]} for key, words in sorted(columns.items())}
        properties[name] = {"description": name.replace("_", " "), "type": "array", "items": {"type": "object", "properties": rows_of}}
    if verb in ANSWERS_LIKE:
        like = json.loads((SCHEMAS / f"{ANSWERS_LIKE[verb]}.json").read_text(encoding="utf-8"))
        properties |= like["$defs"]["answer"]["properties"]
    properties |= {**FIXED, **(OF_QUESTIONS if of_questions else {})}
    required = [*COMMON, *(("headline", *OF_QUESTIONS, "sources") if of_questions else ()), *WORDS["required"].get(verb, ())]
    answer: dict[str, Any] = {"type": "object", "properties": dict(sorted(properties.items())), "additionalProperties": False}
    answer |= required_keys(verb, required, rows)
    whole = (
        {"anyOf": [{"$ref": "#/$defs/answer"}, {"type": "array", "items": {"$ref": "#/$defs/answer"}}]}
        if rows
        else {"$ref": "#/$defs/answer"}
    )
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": f"urn:ironlaw:schema:{SCHEMA_VERSION}:{verb}",
        "title": f"ironlaw {verb} --json",
        "description": f"{VERBS[verb][1]} Values are in SI units; see schema_version in the rules for what may change.",
        **whole,
        "$defs": {**DEFS, "answer": answer},
    }


def required_keys(verb: str, required: list[str], rows: bool) -> dict[str, Any]:
    """What an answer must have: its keys, or those of one explained term, or of a row with an error."""
    forms = [required, *([[*COMMON, "explained"]] if verb == "estimate" else []), *([["error"]] if rows else [])]
    return {"anyOf": [{"required": form} for form in forms]} if len(forms) > 1 else {"required": required}


def write_shared(path: Path) -> None:
    """Write the parts of a schema again that no answer is needed for: shared definitions, keys of every answer, what it must have."""
    found = json.loads(path.read_text(encoding="utf-8"))
    answer = found["$defs"]["answer"]
    of_questions = VERBS[path.stem][0].startswith("questions.")
    answer["properties"] = dict(sorted({**answer["properties"], **FIXED, **(OF_QUESTIONS if of_questions else {})}.items()))
    required = [*COMMON, *(("headline", *OF_QUESTIONS, "sources") if of_questions else ()), *WORDS["required"].get(path.stem, ())]
    rows = {"required": ["error"]} in answer.pop("anyOf", [])
    answer.pop("required", None)
    answer |= required_keys(path.stem, required, rows)
    share_keys(answer)
    found |= {"$id": f"urn:ironlaw:schema:{SCHEMA_VERSION}:{path.stem}", "$defs": {**DEFS, "answer": answer}}
    path.write_text(json.dumps(found, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


def validators() -> dict[str, Any]:
    """A validator of every schema that ships."""
    from jsonschema import Draft202012Validator

    return {path.stem: Draft202012Validator(json.loads(path.read_text(encoding="utf-8"))) for path in sorted(SCHEMAS.glob("*.json"))}


def check(seed: int, count: int, only: str) -> int:
    """Ask random questions and name the answers that break their schema; 1 where there is one."""
    known, broken, seen = validators(), 0, 0
    for words, data, _ in answers(questions(seed, count, False, only)):
        seen += 1
        if error := next(known[words[0]].iter_errors(data), None):
            broken += 1
            from jsonschema.exceptions import best_match

            worst = best_match(known[words[0]].iter_errors(data))
            print(f"ironlaw {' '.join(words)}\n   {worst.json_path}: {worst.message[:200]}")
            del error
    print(f"{seen} answers, {broken} break their schema")
    return int(broken > 0)


def describe_again(schema: dict[str, Any], path: tuple[str, ...]) -> None:
    """Give the keys below a place that are described by their own words the words of the file."""
    for inner in (schema.get("items"), schema.get("additionalProperties")):
        if isinstance(inner, dict):
            describe_again(inner, path)
    for key, form in schema.get("properties", {}).items():
        here = (*path, key)
        if form.get("description") == key.replace("_", " ") != words_of(here, {})["description"]:
            rest = {name: value for name, value in form.items() if name not in ("description", "unit")}
            form.clear()
            form.update({**words_of(here, {}), **rest})
        describe_again(form, here)


def write_words(only: str) -> None:
    """Describe the keys of the schemas that are there, and write their shared parts and the schemas of errors and options again."""
    for name, schema in ALONE.items():
        (SCHEMAS / f"{name}.json").write_text(json.dumps(schema, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    for path in sorted(SCHEMAS.glob(f"{only or '*'}.json")):
        if path.stem in OTHERS:
            found = json.loads(path.read_text(encoding="utf-8")) | {"$defs": DEFS}
            path.write_text(json.dumps(found, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
        if path.stem not in VERBS_WITH_SCHEMA:
            continue
        write_shared(path)
        if VERBS[path.stem][0].startswith("questions."):
            continue  # the titles of columns count before these words, and are not in the file
        found = json.loads(path.read_text(encoding="utf-8"))
        describe_again(found["$defs"]["answer"], ())
        path.write_text(json.dumps(found, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


def share_keys(schema: dict[str, Any]) -> None:
    """Give the warnings, errors and whole answers inside an answer their shared form."""
    if "schema_version" in schema.get("properties", {}):
        schema["properties"].setdefault("headline", FIXED["headline"])
    for inner in (schema.get("items"), schema.get("additionalProperties")):
        if isinstance(inner, dict):
            share_keys(inner)
    for key, form in schema.get("properties", {}).items():
        if key in ("warnings", "headline") and form.get("type") == "array":
            form["items"] = FIXED[key]["items"]
        elif key == "error" and {"code", "message"} <= form.get("properties", {}).keys():
            told = form.get("description", "")
            form.clear()
            form.update({"description": told or "why this row has no answer", "$ref": "#/$defs/error"})
        share_keys(form)


def main(words: list[str]) -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--only", default="", choices=["", *VERBS_WITH_SCHEMA])
    parser.add_argument("--check", type=int, metavar="COUNT")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--words", action="store_true")
    given = parser.parse_args(words)
    if given.words:
        write_words(given.only)
        return 0
    if given.check is not None:
        return check(given.seed + 1000, given.check, given.only)
    shapes: dict[str, tuple[Shape, list[Any], list[bool]]] = {}
    asked = questions(given.seed, RANDOM, True, given.only)
    for done, (asked_words, data, captured) in enumerate(answers(asked), 1):
        shape, seen, rows = shapes.setdefault(asked_words[0], (Shape(), [], []))
        rows.append(isinstance(data, list))
        for answer in data if isinstance(data, list) else [data]:
            for key, item in answer.items():
                shape.keys.setdefault(key, Shape()).add(item)
        seen += captured
        if not done % 25:
            print(f"\r{done} of {len(asked)} ", end="", file=sys.stderr, flush=True)
    SCHEMAS.mkdir(exist_ok=True)
    for verb, (shape, captured, rows) in shapes.items():
        if given.only and verb != given.only:
            continue
        shape.keys.pop("citations", None)
        text = json.dumps(schema(verb, shape, captured, any(rows)), indent=1, ensure_ascii=False, sort_keys=False)
        (SCHEMAS / f"{verb}.json").write_text(text + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
