"""Plain logs: any text with lines that print tokens per second, with or without the step and its time.

    step 120  loss 2.31  tokens/s 150000
    iter 7: 151,200 tok/s, step time 27.7 s

The rate is of the whole job, unless the line says per GPU. A line without a step time gives the rate alone.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import replace

from ironlaw.measure.logs.log import Log, Notes, Rows, number, ranked

NAME = "plain"
_NEVER = re.compile(rb"(?!)")
_NUMBER = r"(?P<{0}>\d[\d,]{{0,20}}(?:\.\d{{1,12}})?(?:[eE][+-]?\d{{1,2}})?)\s?(?P<{0}_prefix>[kKMG])?"
_UNIT = r"tok(?:en)?s?\s?(?:/|\sper\s)\s?s(?:ec(?:ond)?)?s?"
_GPU = r"(?:\s?(?:/|\sper\s)\s?(?:gpu|device|accelerator))"
SIGNS = (  # after all signs of the other formats
    *([_NEVER] * 4),
    re.compile(
        rb"(?i)\btok(?:en)?s?\s?(?:/|\sper\s)\s?s(?:ec(?:ond)?)?s?\b[^\n\d]{0,12}\d|\d[kKMG]?\s?tok(?:en)?s?\s?(?:/|\sper\s)\s?s(?:ec|\b)"
    ),
)
_AFTER = re.compile(rf"(?i)\b{_UNIT}\b(?P<gpu>{_GPU})?\s{{0,3}}[:=|]?\s{{0,3}}{_NUMBER.format('after')}\b")
_BEFORE = re.compile(rf"(?i)\b{_NUMBER.format('before')}\s?{_UNIT}\b(?P<gpu>{_GPU})?")
_STEP = re.compile(r"(?i)\b(?:step|iter(?:ation)?)s?\s{0,3}[:=#]?\s{0,3}(\d{1,12})\b")
_TIME = re.compile(r"(?i)\b(?:(?:step|iteration)[ _]time|time[ _]per[ _](?:step|iteration))\s{0,3}[:=]?\s{0,3}(\d+(?:\.\d+)?)\s?(ms|s)\b")
_PREFIXES = {"": 1.0, "k": 1e3, "K": 1e3, "M": 1e6, "G": 1e9}


def read(text: Iterable[str], notes: Notes) -> Log:
    """Read the lines of a plain log that print a rate."""
    rows, of_gpu = Rows(notes), 0
    for count, whole_line in enumerate(text):
        rank, line = ranked(whole_line)
        match = _AFTER.search(line)
        name = "after" if match else "before"
        match = match or _BEFORE.search(line)
        value = number(match[name]) if match else None
        if match is None or value is None or value <= 0.0:
            notes.device(line)
            continue
        of_gpu += match["gpu"] is not None
        step, time = _STEP.search(line), _TIME.search(line)
        seconds = (number(time[1]) or 0.0) * (1e-3 if time[2].lower() == "ms" else 1.0) if time else float("nan")
        rate = value * _PREFIXES[match[f"{name}_prefix"] or ""]
        rows.add(int(step[1]) if step else count, seconds, rank=rank, tokens_per_second=rate)
    log = rows.log(NAME, tokens_of="gpu" if of_gpu else "job")
    if not of_gpu:
        notes.warn("the log does not say whether its tokens per second are of one GPU: they are read as of the whole job")
    return replace(log, aside=tuple("" if why.startswith("no time") else why for why in log.aside), warnings=tuple(notes.warnings))
