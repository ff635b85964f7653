"""What a worker process does for the server: asks a question, and draws its answer."""

from __future__ import annotations

import json
import os
import re
import sys
import tempfile
import traceback
from collections.abc import Callable, Mapping
from functools import wraps
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import parse_qsl

import ironlaw
from ironlaw.errors import IronlawError, QuestionError
from ironlaw.files import write_file
from ironlaw.web.address import VERSUS, open_of, options_of

VERBS = (
    "estimate",
    "plan",
    "compare",
    "money",
    "goodput",
    "elastic",
    "solve",
    "sweep",
    "roofline",
    "inference",
    "scaling",
    "optimize",
    "data",
    "sites",
)  # that the page asks
LESSONS = ("roofline", "6nd", "checkpointing", "parallelism")  # pages that teach
LONGEST = 4096  # characters of a value
# a path that would leave the empty folder a worker runs in; 64..4096 is a range
_REACHES_OUT = re.compile(r"(^|[=,:;\s])[/~\\]|\.\.[/\\]|(^|[=,:;\s/\\])\.\.($|[,;\s])")
_OF_FILES = ("catalog", "correction")  # options that only name files


def reported(function: Callable[..., Reply]) -> Callable[..., Reply]:
    """The function, with a defect of ours as a reply: one line to the terminal, none of it to the page."""

    @wraps(function)
    def answered(*arguments: Any) -> Reply:
        try:
            return function(*arguments)
        except Exception as error:
            where = traceback.extract_tb(error.__traceback__)[-1]
            print(f"ironlaw: {type(error).__name__} in {where.name}, line {where.lineno}, for {arguments}: {error}", file=sys.stderr)
            message = "This question met a defect of ironlaw; the terminal of the server says more."
            data: dict[str, Any] = {"code": "defect", "option": None, "value": None, "message": message, "nearest": [], "offers": []}
            return Reply(500, _json({"error": data}), "No answer", f'<main id="answer"><h1>{message}</h1></main>')

    return answered


class Reply(NamedTuple):
    """An answer for the server: HTTP status, the answer as JSON, and as HTML its title, its rail's values and its sections."""

    status: int
    data: str
    title: str = ""
    html: str = ""


def too_long(seconds: float) -> Reply:
    """The reply where an answer takes longer than it may."""
    message = f"The answer takes more than {seconds:g} s: give more of the plan, or ask on the command line."
    data: dict[str, Any] = {"code": "too-long", "option": None, "value": None, "message": message, "nearest": [], "offers": []}
    return Reply(503, _json({"error": data}), "No answer", f'<main id="answer"><h1>{message}</h1></main>')


def answer_data(verb: str, given: Mapping[str, str]) -> dict[str, Any]:
    """The answer of a verb as plain data; an IronlawError where there is none."""
    check_words(given)
    _leave_files()
    found = getattr(ironlaw, verb)(**options_of(given))
    if verb == "estimate":
        from ironlaw.report.whole_answer import looked_up

        return looked_up(found)
    data: dict[str, Any] = found.to_dict()
    return data


def compared_with(verb: str, given: Mapping[str, str]) -> dict[str, Any] | None:
    """The answer that an estimate is compared with; None where none is named, or where it has no answer."""
    if verb != "estimate" or not given.get(VERSUS):
        return None
    try:
        found = answer_data("estimate", dict(parse_qsl(given[VERSUS])))
    except IronlawError:
        return None
    return found if found.get("step", {}).get("seconds") else None


def check_words(given: Mapping[str, str]) -> None:
    """Refuse values that are long, or that name files: a request never reaches the disk."""
    for name, value in given.items():
        if len(value) > LONGEST:
            raise QuestionError(f"{name} has {len(value):,} characters, at most {LONGEST:,} are read")
        if name in _OF_FILES or _REACHES_OUT.search(value):
            raise QuestionError(f"{name} names a file, which the page does not read: ask on the command line")


def _leave_files() -> None:
    """Work in an empty folder, so that no name is a file."""
    if not os.path.basename(os.getcwd()).startswith("ironlaw-empty-"):
        os.chdir(tempfile.mkdtemp(prefix="ironlaw-empty-"))


def with_models(models: Mapping[str, bytes], function: Callable[..., Reply], *arguments: Any) -> Reply:
    """What a function answers while dropped configurations of models lie in the folder of this worker, under the names of their content."""
    _leave_files()
    for name, content in models.items():
        write_file(name, content)
    try:
        return function(*arguments)
    finally:
        for name in models:
            Path(name).unlink(missing_ok=True)


@reported
def reply(verb: str, given: Mapping[str, str]) -> Reply:
    """Answer and draw, or draw why there is no answer."""
    from ironlaw.web import draw

    try:
        data = answer_data(verb, given)
    except IronlawError as error:
        found = error.data()
        return Reply(422, _json({"error": found}), "No answer", str(draw.problem(found, given, verb)))
    shown = with_pipeline(data) if verb == "plan" else data
    title, drawn = draw.answer(verb, shown, given, compared_with(verb, given))
    return Reply(200, _json(data), title, str(drawn))


def with_pipeline(data: dict[str, Any]) -> dict[str, Any]:
    """A search whose best plan says when each pass runs on each stage, which its JSON leaves out; as it is where there is one stage."""
    from ironlaw.interface import arguments

    best = next(iter(data["plans"]), None)
    if best is None or best["plan"]["pp"] == 1:
        return data
    known = {argument.name for argument in arguments("estimate")}
    asked: dict[str, Any] = {name: value for kind in ("given", "plan") for name, value in best["asked"][kind].items() if name in known}
    return {**data, "plans": [{**best, "timeline": ironlaw.estimate(**asked).timeline()}, *data["plans"][1:]]}


@reported
def raw(verb: str, given: Mapping[str, str]) -> Reply:
    """Answer as data alone."""
    try:
        return Reply(200, _json(answer_data(verb, given)))
    except IronlawError as error:
        return Reply(422, _json({"error": error.data()}))


@reported
def explained(given: Mapping[str, str], path: str) -> Reply:
    """One term of an estimate, drawn for the drawer."""
    from ironlaw.report.explanation import explained_data
    from ironlaw.web import drawer

    try:
        check_words(given)
        _leave_files()
        asked: dict[str, Any] = {**options_of(given)}
        estimate = ironlaw.estimate(**asked)
        data = explained_data(estimate, path)
    except IronlawError as error:
        return Reply(422, _json({"error": error.data()}), "", str(drawer.no_term(path, error.data())))
    whole = {name: float(getattr(estimate, name)[0]) for name in ("step_seconds", "device_bytes")}
    return Reply(200, _json(data), path, str(drawer.term({**data, **whole}, path)))


@reported
def column(given: Mapping[str, str], name: str, stops: tuple[int, ...], at: int) -> Reply:
    """The first screen of every stop of a slider, with the plan that the question holds, beside the answer where the slider was taken."""
    from ironlaw.web import draw

    try:
        check_words(given)
        _leave_files()
        answers: dict[int, Any] = {}
        for stop in stops:
            try:
                asked: dict[str, Any] = {**options_of(given), name: stop}
                found = ironlaw.estimate(**asked).to_dict()
                answers[stop] = next((one["text"] for one in found["headline"] if one["code"] == "no-such-plan"), found)
            except IronlawError as error:
                answers[stop] = str(error)
        before = compared_with("estimate", given) or answers.get(at)
        drawn = [
            {"value": stop, "why_not": found} if isinstance(found, str) else draw.stop_of(found, stop, before if stop != at else None)
            for stop, found in answers.items()
        ]
    except IronlawError as error:
        return Reply(422, _json({"error": error.data()}))
    return Reply(200, _json({"name": name, "stops": drawn}))


@reported
def offered(given: Mapping[str, str]) -> Reply:
    """The plan that a question without its held axes is answered with, beside the held one: faster, slower, or the one that fits."""
    from ironlaw.catalog import load
    from ironlaw.web import draw

    held, anew = _outcome(given), _outcome(open_of(given))
    least = load.record("bands", "default").told_apart.value
    faster = held[0] / anew[0] - 1.0 if held[0] and anew[0] else None
    says = draw.offer(held, anew, least, open_of(given)) if anew[0] else None
    return Reply(200, _json({"faster": faster, "least": least, "html": str(says) if says is not None else ""}))


def _outcome(given: Mapping[str, str]) -> tuple[float | None, bool]:
    """Seconds of a step, and whether it fits; None where a question has no answer."""
    try:
        found = answer_data("estimate", given)
    except IronlawError:
        return None, False
    seconds = found["step"]["seconds"]
    return seconds, seconds is not None and bool(found["memory"]["fits"])


@reported
def curve(given: Mapping[str, str], name: str, stops: tuple[int, ...], at: int) -> Reply:
    """Tokens a second over the stops of a slider, with the plan that the question holds, drawn for the rail."""
    from ironlaw.web import draw

    try:
        check_words(given)
        _leave_files()
        asked: dict[str, Any] = {**options_of(given), name: list(stops)}
        found = ironlaw.estimate(**asked)
        drawn = draw.curve(stops, _rates(found), at)
    except IronlawError:
        return Reply(200, "")  # the page is complete without it
    return Reply(200, "", "", drawn)


def _rates(found: Any) -> list[tuple[float, float, float] | None]:
    """Tokens a second of the rows of an estimate: low end, middle and high end of the band; None where there is no plan."""
    columns = found.to_columns()
    ends = zip(*(columns[name] for name in ("tokens_per_second", "step_seconds", "band_low_seconds", "band_high_seconds")), strict=True)
    return [
        None if not rate else (rate, rate, rate) if low is None else (rate * seconds / high, rate, rate * seconds / low)
        for rate, seconds, low, high in ends
    ]


@reported
def report(verb: str, given: Mapping[str, str]) -> Reply:
    """The report of an answer, to be saved."""
    from datetime import date

    from ironlaw.page.report import report as document
    from ironlaw.web import draw

    try:
        data = answer_data(verb, given)
    except IronlawError as error:
        return Reply(422, _json({"error": error.data()}))
    return Reply(200, document(data, verb, draw.command_words(verb, given), date.today()))


@reported
def lesson(topic: str, at: int | None) -> Reply:
    """A page that teaches, at a stop of its slider."""
    from ironlaw.web import learn

    _leave_files()
    return Reply(200, "", "", learn.page(topic, at))


def _json(data: Any) -> str:
    return json.dumps(data, separators=(",", ":"), allow_nan=False)
