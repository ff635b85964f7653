"""The table of the exchange between sites that share the accelerators of the rows of a sweep; and the sizes of a table."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ironlaw.errors import QuestionError, SpaceError, UnitError, UnknownNameError, ValueRangeError
from ironlaw.questions.answer import Column, Table, ask_verb, filled_columns, read
from ironlaw.questions.sites.options import OPTIONS as SITES
from ironlaw.questions.sweep.options import EXCHANGE, EXCHANGE_LISTS, LISTS, PASSED
from ironlaw.terms import scalar

MOST_ROWS = 400  # a longer table is a search, which is ``ironlaw plan``
EXCHANGES = (
    Column("model", "model"), Column("batch", "batch", "token"), Column("seq_len", "sequence", "1"), Column("gpus", "GPUs", "1"),
    Column("way", "exchange"), Column("format", "format"), Column("every", "every, steps", "1"),
    Column("gradients", "gradients", "decimal B"),
    Column("exchange", "one exchange", "s"), Column("exposed", "waits per step", "s"), Column("waiting", "waits, run", "s"),
    Column("share", "waiting", "%"), Column("seconds", "run takes", "s"), Column("usd", "USD", "USD"),
    Column("idle", "USD for waiting", "USD"), Column("why_not", ""),
)  # fmt: skip
RESULTS = {  # by key of the row, the name in the answer of sites
    "exchange": "exchange", "exposed": "exposed", "share": "communication share", "seconds": "seconds", "usd": "cost",
    "gradients": "gradients", "idle": "cost of waiting", "waiting": "waiting",
}  # fmt: skip


def check_sizes(values: Mapping[str, Any], lists: Sequence[str] = LISTS) -> None:
    """Refuse more rows than a table has, and an exchange of a single site."""
    rows = math.prod(len(values[name]) for name in lists if name in values)
    if rows > MOST_ROWS:
        raise SpaceError(f"{rows:,} rows are more than {MOST_ROWS}: give shorter lists, or use ironlaw plan, which searches")
    if "sites" in values and count_sites(values) < 2:
        raise ValueRangeError(f"--sites is {count_sites(values)}: an exchange needs at least two; leave it out for one")


def count_sites(values: Mapping[str, Any]) -> int:
    """Sites of the question."""
    return values["sites"] if isinstance(values["sites"], int) else len(values["sites"])


def tabulate_exchanges(
    values: Mapping[str, Any],
    rows: Sequence[Mapping[str, Any]],
    asked_of: Callable[[Mapping[str, Any], Any], dict[str, Any]],
    folders: tuple[str, ...],
    models: str = "model",
) -> Table:
    """A row for each row of the sweep and each exchange; ``asked_of`` gives the model, the accelerators and the step of a row."""
    named = (*EXCHANGE, *PASSED, "sites", "on", "price", "pue", "rounding")
    passed = {name: values[name] for name in named if name in values and name in SITES}
    ways = [
        {name: value for name, value in zip(EXCHANGE_LISTS, way, strict=True) if value is not None}
        for way in itertools.product(*(values.get(name, (None,)) for name in EXCHANGE_LISTS))
    ]
    exchanges = []
    for index, row in enumerate(rows):
        model = values[models][index * len(values[models]) // len(rows)]  # rows are in the order of the models
        asked = {**passed, "tokens": row["tokens"], "global_batch_tokens": row["batch"], **asked_of(row, model)}
        start = {"model": row["model"], "batch": row["batch"], "seq_len": row["seq_len"], "gpus": asked["gpus"]}
        exchanges += [_make_exchange_row(start, asked, way, folders) for way in ways]
    return Table("exchanges", f"The same at {count_sites(values)} sites", filled_columns(EXCHANGES, exchanges), exchanges)


def _make_exchange_row(start: dict[str, Any], asked: dict[str, Any], way: dict[str, Any], folders: tuple[str, ...]) -> dict[str, Any]:
    """One run at several sites with one exchange; a row without an answer says why."""
    start = {**start, "way": way.get("exchange", "ring"), "format": way.get("gradients", "bf16"), "every": way.get("inner_steps", 1.0)}
    try:
        answer = ask_verb("sites", read({**asked, **way}, SITES, "sites"), folders)
    except (UnknownNameError, UnitError):
        raise  # the option is wrong for every row
    except QuestionError as error:
        return {**start, "why_not": str(error)}
    return {**start, **{key: scalar(answer[name]) for key, name in RESULTS.items()}, "why_not": ""}
