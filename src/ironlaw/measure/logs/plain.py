"""Plain logs of trainers that no other reader knows: lines with a step and its time, a time stamp, or a rate of tokens.

    step 120  loss 2.31  tokens/s 150000
    iter 7: 151,200 tok/s, step time 27.7 s
    step 40 | loss 3.214 | dt 338.12ms
    2026-11-02 10:00:30 INFO step=40 loss=3.214
    [step 40] loss 3.214, elapsed 96.2 s

The rate is of the whole job, unless the line says per GPU. The time of a step is, in this order: a figure with a unit that the line gives
for one step; the elapsed time of the run, or the time stamp, since the line before, over the steps between them. A time without a unit is
not read: it may be in seconds or milliseconds. A line without a time gives the rate alone.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from dataclasses import replace

from ironlaw.cautions.table import caution
from ironlaw.measure.logs.log import Log, Notes, Rows, clock, number, ranked

NAME = "plain"
_NEVER = re.compile(rb"(?!)")
_NUMBER = r"(?P<{0}>\d[\d,]{{0,20}}(?:\.\d{{1,12}})?(?:[eE][+-]?\d{{1,2}})?)\s?(?P<{0}_prefix>[kKMG])?"
_UNIT = r"tok(?:en)?s?\s?(?:/|\sper\s)\s?s(?:ec(?:ond)?)?s?"
_GPU = r"(?:\s?(?:/|\sper\s)\s?(?:gpu|device|accelerator))"
_COUNTER = r"\b(?:global[_ ]?step|step|iter(?:ation)?)s?\s{0,3}[:=#]?\s{0,3}(\d{1,12})\b"
_AMOUNT = r"(?P<value>\d{1,15}(?:\.\d{1,12})?)\s{0,2}(?P<unit>ms|milliseconds?|s|secs?|seconds?)\b"
_PER = r"(?:step|iter(?:ation)?|batch|it)"
# names of the time of one step, and of the time since the start
_ONE = rf"(?:(?:{_PER}[ _])?(?:time|dt|duration|took)|(?:time|s|sec)[ _]?(?:per[ _]|/){_PER}|\bin)"
_SINCE = r"(?:elapsed(?:[ _]time)?|total[ _]time|train[ _]time|wall(?:[ _]?(?:time|clock))?|run[ _]?time)"
SIGNS = (  # after all signs of the other formats
    *([_NEVER] * 4),
    re.compile(
        rb"(?i)\btok(?:en)?s?\s?(?:/|\sper\s)\s?s(?:ec(?:ond)?)?s?\b[^\n\d]{0,12}\d|\d[kKMG]?\s?tok(?:en)?s?\s?(?:/|\sper\s)\s?s(?:ec|\b)"
    ),
    re.compile(rb"(?i)" + _COUNTER.encode() + rb"[^\n]{0,400}?\d\s{0,2}(?:ms|s|secs?|seconds?|s/it|it/s|sec/it|s/step)\b"),
    re.compile(rb"(?i)\d\d:\d\d:\d\d[^\n]{0,200}?" + _COUNTER.encode()),
)
_AFTER = re.compile(rf"(?i)\b{_UNIT}\b(?P<gpu>{_GPU})?\s{{0,3}}[:=|]?\s{{0,3}}{_NUMBER.format('after')}\b")
_BEFORE = re.compile(rf"(?i)\b{_NUMBER.format('before')}\s?{_UNIT}\b(?P<gpu>{_GPU})?")
_STEP = re.compile(rf"(?i){_COUNTER}")
_SINCE_START = re.compile(rf"(?i)\b{_SINCE}\s{{0,3}}[:=]?\s{{0,3}}{_AMOUNT}")
_ONE_STEP = re.compile(rf"(?i)(?<![a-z_ ]elapsed )\b{_ONE}\s{{0,3}}[:=]?\s{{0,3}}{_AMOUNT}")
_NAMED_UNIT = re.compile(  # "sec/it: 2.0", "step_time(s): 2.0", "iter_time_ms=338"
    rf"(?i)\b(?:(?P<per>s|sec|ms)/(?:it|iter|step|batch)|{_PER}[_ ]?time[ _]?\(?(?P<name>ms|s|sec|seconds)\)?|dt_(?P<dt>ms|s))"
    r"\s{0,3}[:=]?\s{0,3}(?P<value>\d{1,15}(?:\.\d{1,12})?)(?![\w.])"
)
_RATE = re.compile(
    r"(?i)(?<![\w.])(?P<value>\d{1,15}(?:\.\d{1,12})?)\s?"
    r"(?P<unit>(?:s|sec|ms)\/(?:it|iter|step)|(?:it|iter|steps?)\/s)\b"
)
_PREFIXES = {"": 1.0, "k": 1e3, "K": 1e3, "M": 1e6, "G": 1e9}


def read(text: Iterable[str], notes: Notes) -> Log:
    """Read the lines of a plain log that print a rate, or a step with its time."""
    rows, of_gpu, without_unit, rated = Rows(notes), 0, 0, False
    for count, whole_line in enumerate(text):
        rank, line = ranked(whole_line)
        match = _AFTER.search(line)
        name = "after" if match else "before"
        match = match or _BEFORE.search(line)
        value = number(match[name]) if match else None
        rate = value * _PREFIXES[match[f"{name}_prefix"] or ""] if match is not None and value is not None and value > 0.0 else None
        step = _STEP.search(line)
        if rate is None and step is None:
            notes.device(line)
            continue
        of_gpu += match is not None and match["gpu"] is not None
        rated = rated or rate is not None
        seconds = step_time(line)
        moment = since_start(line) if math.isnan(seconds) else None
        moment = clock(line) if moment is None and math.isnan(seconds) else moment
        if rate is None and math.isnan(seconds) and moment is None:
            without_unit += 1
            continue
        rows.add(int(step[1]) if step else count, seconds, rank=rank, clock=moment, tokens_per_second=rate)
    if without_unit:
        notes.skipped["a line with a step, and no time with a unit"] += without_unit
    log = rows.log(NAME, tokens_of="gpu" if of_gpu else "job")
    if rated and not of_gpu:
        notes.warn(caution("tokens-of-whole-job"))
    aside = tuple("" if why.startswith("no time") and rated else why for why in log.aside)
    return replace(log, aside=aside, warnings=tuple(notes.warnings))


def step_time(line: str) -> float:
    """The time of one step that a line prints with its unit [s]; nan where it prints none.

    >>> step_time("step 4 | dt 250ms"), step_time("iter 7: step time 27.7 s"), step_time("step 3: 2.5 s/it"), step_time("sec/it: 2.0")
    (0.25, 27.7, 2.5, 2.0)
    >>> step_time("step 4: 0.5 it/s"), step_time("step 4, elapsed time: 96.2 s"), step_time("step 4 time 3.1")
    (2.0, nan, nan)
    """
    if match := _NAMED_UNIT.search(line):
        return (number(match["value"]) or math.nan) * _seconds_of(match["per"] or match["name"] or match["dt"])
    if match := _RATE.search(line):
        value = number(match["value"])
        if not value:
            return math.nan
        return value * _seconds_of(match["unit"].split("/")[0]) if not match["unit"].lower().endswith("/s") else 1.0 / value
    if _SINCE_START.search(line) is None and (match := _ONE_STEP.search(line)):
        return (number(match["value"]) or math.nan) * _seconds_of(match["unit"])
    return math.nan


def since_start(line: str) -> float | None:
    """The time since the start of the run that a line prints with its unit [s]; None where it prints none.

    >>> since_start("step 40: elapsed 96.2 s"), since_start("step 40, total time: 1500 ms"), since_start("step 40")
    (96.2, 1.5, None)
    """
    match = _SINCE_START.search(line)
    value = number(match["value"]) if match else None
    return None if match is None or value is None else value * _seconds_of(match["unit"])


def _seconds_of(unit: str) -> float:
    """Seconds of one unit of time.

    >>> _seconds_of("ms"), _seconds_of("sec")
    (0.001, 1.0)
    """
    return 1e-3 if unit.lower().startswith("m") else 1.0
