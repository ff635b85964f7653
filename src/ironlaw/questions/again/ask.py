"""Answer ``ironlaw again``: the question of a saved answer is read from its ``asked``, asked anew, and the two answers are compared.

Nothing else of the file is used, and nothing of it is run: the command that a report prints is for people. A plan that the tool chose is
chosen anew.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from ironlaw import files
from ironlaw.earlier import check_version, respell
from ironlaw.errors import InputError, QuestionError, UnsupportedError, quote
from ironlaw.estimate.answer.estimate import answer
from ironlaw.estimate.answer.saved import LARGEST, Saved, answer_of
from ironlaw.question.read import read_options
from ironlaw.questions.answer import Answer, Column, Table, answer_question
from ironlaw.questions.diff.answers import check_answer_of_verb, compare_answers
from ironlaw.questions.diff.ask import difference_of
from ironlaw.search.answer import search

NOW = "today"
MOVED = (
    Column("value", "value, in SI units"), Column("saved", "saved", "1"), Column("now", NOW, "1"),
    Column("difference", "difference", "1"), Column("share", "change", "%"),
)  # fmt: skip
_NO_QUESTION = ("diff", "again")  # verbs whose question is other files

Data = Mapping[str, Any]


def ask(values: dict[str, Any], folders: tuple[str, ...] = ()) -> Answer:
    """The saved answer against that of today. The answer is no where a value, an assumption or the plan moved."""
    if "file" not in values:
        raise QuestionError("again needs a saved answer: ironlaw again FILE")
    path = Path(values["file"])
    data = files.read_saved(path, LARGEST)
    _check_version(data, path)
    found = _of_verb(data, path, folders) if "feasible" in data else _of_estimate(data, path, folders)
    return replace(found, title=f"{path.name} asked again, with the ironlaw of today", folders=folders)


def _check_version(data: Any, path: Path) -> None:
    """Refuse what is no answer, and answers of versions that are not read."""
    if not isinstance(data, dict) or "schema_version" not in data:
        raise InputError(f"{path}: no answer of ironlaw: give a file from --json or --html")
    check_version(data["schema_version"], str(path))
    if "files" in data and "findings" in data:
        raise UnsupportedError(f"{path}: a diagnosis of files, which an answer does not hold: run ironlaw diagnose on them again")


def _of_verb(data: Data, path: Path, folders: tuple[str, ...]) -> Answer:
    """The answer of a verb that answers in tables."""
    saved = check_answer_of_verb(data, str(path))
    if saved is None:
        raise InputError(f"{path}: without the key 'headline', which every answer has: give a file from --json or --html")
    verb, given = respell(saved["asked"]["verb"], saved["asked"]["given"])
    if verb in _NO_QUESTION:
        raise UnsupportedError(f"{path}: an answer of ironlaw {verb}, whose question is other files: ask it of them")
    try:
        fresh = _plain(answer_question(verb, given, folders).to_dict())
    except ModuleNotFoundError:
        raise InputError(f"{path}: asked names {quote(verb)}, which is no verb that asks a question") from None
    found = compare_answers(saved, fresh, (path.name, NOW))
    rows = [
        {"value": row["value"], "saved": row["a"], "now": row["b"], "difference": row["difference"], "share": row["share"]}
        for row in found.table("values").rows
    ]
    return _with_moved(found, rows, "values")


def _of_estimate(data: Data, path: Path, folders: tuple[str, ...]) -> Answer:
    """The answer of an estimate, or of a search by its best plan."""
    saved = answer_of(data, path)
    fresh = _searched(data, path, folders) if "plans" in data else _estimated(saved, folders)
    found = difference_of(saved, fresh, folders)
    before, after, difference = found.table("results").rows or [{}] * 3
    rows = [
        {
            "value": f"{name} [{unit}]" if unit else name,
            "saved": before[key],
            "now": after[key],
            "difference": difference[key],
            "share": difference[key] / before[key] if before[key] and difference[key] is not None else None,
        }
        for key, name, unit in _RESULTS
        if difference.get(key)
    ]
    return _with_moved(found, rows, "results")


_RESULTS = (
    ("seconds", "step", "s"), ("bytes", "memory", "B"), ("mfu", "MFU", ""), ("tokens_per_second", "tokens/s", ""), ("days", "days", ""),
    ("usd", "cost", "USD"),
)  # fmt: skip


def _with_moved(found: Answer, rows: list[dict[str, Any]], instead: str) -> Answer:
    """The difference with the table of what moved at its top, in the place of another."""
    rest = [table for table in found.tables if table.name != instead]
    return replace(found, tables=[Table("moved", "What moved", MOVED, rows), *rest])


def _estimated(saved: Saved, folders: tuple[str, ...]) -> Saved:
    """The estimate of today of the options that were given; what was chosen is chosen anew."""
    data = _plain(answer(dict(saved.given), folders).row(0))
    given, plan = (read_options(data["asked"][key], NOW) for key in ("given", "plan"))
    return Saved(NOW, data, given, plan)


def _searched(data: Data, path: Path, folders: tuple[str, ...]) -> Saved:
    """The best plan of today's search; the older answers, which do not say what was given, cannot be searched again."""
    asked = data.get("asked")
    if not isinstance(asked, dict) or not isinstance(asked.get("given"), dict):
        raise InputError(f"{path}: without the key 'asked', made by an earlier version: run ironlaw plan --json again")
    given = {str(name): value for name, value in asked["given"].items()}
    plans = _plain(search(**given, catalog=folders, where=path.name).to_dict())
    if not plans["plans"]:
        raise QuestionError(f"{path.name}: no plan of today's search meets the question: run ironlaw plan to read why")
    return answer_of(plans, Path(NOW))


def _plain(data: Any) -> Any:
    """Plain data as a file would have it."""
    return json.loads(json.dumps(data))
