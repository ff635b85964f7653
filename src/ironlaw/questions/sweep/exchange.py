"""The rows of a sweep again, spread over several sites, as ``ironlaw sites`` answers them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from ironlaw.errors import QuestionError, UnitError, UnknownNameError
from ironlaw.questions.answer import Column, Table, filled_columns
from ironlaw.questions.sites.ask import ask as ask_sites
from ironlaw.questions.sites.options import OPTIONS as SITES
from ironlaw.questions.sweep.options import EXCHANGE, PASSED
from ironlaw.terms import scalar

COLUMNS = (
    Column("model", "model"), Column("batch", "batch", "token"), Column("seq_len", "sequence", "1"), Column("gpus", "GPUs", "1"),
    Column("gradients", "sent", "B"), Column("exchange", "one exchange", "s"), Column("exposed", "waits per step", "s"),
    Column("share", "waiting", "%"), Column("seconds", "run takes", "s"), Column("usd", "USD", "USD"),
    Column("idle", "USD for waiting", "USD"),
    Column("why_not", ""),
)  # fmt: skip
RESULTS = {  # by key of the row, the name in the answer of sites
    "exchange": "exchange", "exposed": "exposed", "share": "communication share", "seconds": "seconds", "usd": "cost",
    "gradients": "gradients", "idle": "cost of waiting",
}  # fmt: skip


def tabulate_exchanges(values: dict[str, Any], rows: Sequence[Mapping[str, Any]], folders: tuple[str, ...]) -> Table:
    """A row for each row of the sweep, on the next count that the sites share evenly."""
    count = values["sites"]
    passed = {name: values[name] for name in (*EXCHANGE, *PASSED, "on", "price", "pue", "mfu") if name in values and name in SITES}
    models = values["model"]
    exchanges = []
    for index, row in enumerate(rows):
        gpus = math.ceil((row["gpus"] or 1.0) / count) * count
        asked = passed | {
            "model": models[index * len(models) // len(rows)],  # rows are in the order of the models
            "sites": int(count),
            "gpus": str(int(gpus)),
            "tokens": row["tokens"],
            "global_batch_tokens": row["batch"],
        }
        if "mfu" not in values:
            asked["seq_len"] = row["seq_len"]
        start = {"model": row["model"], "batch": row["batch"], "seq_len": row["seq_len"], "gpus": gpus}
        try:
            answer = ask_sites(asked, folders)
        except (UnknownNameError, UnitError):
            raise  # the option is wrong for every row
        except QuestionError as error:
            exchanges.append({**start, "why_not": str(error)})
            continue
        exchanges.append({**start, **{key: scalar(answer[name]) for key, name in RESULTS.items()}, "why_not": ""})
    return Table("exchanges", f"The same at {count:.0f} sites", filled_columns(COLUMNS, exchanges), exchanges)
