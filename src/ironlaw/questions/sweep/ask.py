"""A job over batch sizes, sequence lengths, models, tokens and counts: what a run takes, and what accumulation does to memory.

With ``--gpus`` every row is an estimate of its own. With ``--step-time`` and ``--mfu`` it is document 004's table (simplified): as many
accelerators as make a step that long, and accumulation that trades accelerators for days.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping
from typing import Any

from ironlaw import units
from ironlaw.errors import IronlawError, QuestionError, SpaceError, UnitError, UnknownNameError, ValueRangeError
from ironlaw.question import options as known
from ironlaw.question.options import Option, duration, share, tokens, whole
from ironlaw.questions.answer import Answer, Column, Table, need, read

MOST = 400  # rows; a table longer than this is a search, which is ``ironlaw plan``


def several(reader: Callable[[Any, str], Any]) -> Callable[[Any, str], tuple[Any, ...]]:
    """A reader of a comma list."""

    def split(value: Any, flag: str) -> tuple[Any, ...]:
        items = value if isinstance(value, (list, tuple)) else str(value).split(",") if isinstance(value, str) else [value]
        if not items:
            raise ValueRangeError(f"{flag} is empty: give at least one value")
        return tuple(reader(item.strip() if isinstance(item, str) else item, flag) for item in items)

    return split


def models(value: Any, flag: str) -> tuple[Any, ...]:
    """Names with commas between them; dimensions (``hidden_size=...,...``) are one model."""
    if isinstance(value, Mapping) or (isinstance(value, str) and "=" in value):
        return (known.model(value, flag),)
    return several(known.model)(value, flag)


def run_tokens(value: Any, flag: str) -> tuple[str, float]:
    """Tokens of a run, or so many for each parameter: ``20x``."""
    if isinstance(value, str) and value.endswith("x"):
        try:
            return "x", known.positive("1")(value[:-1], flag)
        except UnitError:
            raise UnitError(f"{flag}: {value!r} is neither tokens (1.4T) nor tokens for each parameter (20x)") from None
    return "", tokens(value, flag)


PASSED = (
    "precision",
    "optimizer",
    "framework",
    "recompute",
    "micro_batch_size",
    "tp",
    "pp",
    "cp",
    "ep",
    "zero",
    "overlap",
    "node",
    "fabric",
)
EXCHANGE = ("sites", "wan_bandwidth", "shared_bandwidth", "exchange", "gradients", "every")
OPTIONS: dict[str, Option] = {
    "model": Option(models, "comma list of models", "MODEL[,..]"),
    "parameters": Option(several(tokens), "instead of MODEL, simplified: comma list of counts such as 7B,70B", "LIST"),
    "on": known.OPTIONS["on"],
    "gpus": Option(several(whole), "comma list of accelerators in all: every row by estimate", "LIST"),
    "tokens": Option(several(run_tokens), "comma list of tokens of the run, such as 1.4T, or for each parameter: 20x", "LIST"),
    "global_batch_tokens": Option(several(tokens), "comma list of tokens per optimizer step (default: the estimate's)", "LIST"),
    "seq_len": Option(several(whole), "comma list of tokens per sequence", "LIST"),
    "step_time": Option(duration, "instead of --gpus, simplified: how long a step may take, such as 1s", "TIME"),
    "mfu": Option(share, "simplified: every row at this share of the peak", "X"),
    "accumulate": Option(several(whole), "simplified: comma list of micro-batches in turn (default: 1,5,10,100)", "LIST"),
    "price": known.OPTIONS["price"],
    "pue": known.OPTIONS["pue"],
    "sites": Option(whole, "the accelerators stand at so many sites: adds the table of their exchange", "N"),
    **{name: Option(known.text, f"of that exchange, as ironlaw sites takes it: --{name.replace('_', '-')}", "X") for name in EXCHANGE[1:]},
    **{name: known.OPTIONS[name] for name in PASSED},
}
LISTS = ("model", "parameters", "gpus", "tokens", "global_batch_tokens", "seq_len")
SIMPLE = ("parameters", "step_time", "accumulate")


def sweep(model: Any = None, on: str | None = None, *, catalog: tuple[str, ...] = (), **options: Any) -> Answer:
    """A table of runs: ``sweep("llama-3-8b", on="h100-sxm", gpus=64, tokens="20x", global_batch_tokens=["1M", "4M"])``."""
    from ironlaw.catalog import load

    return ask({"model": model, "on": on, **options}, load.given_folders(catalog))


def ask(options: Mapping[str, Any], folders: tuple[str, ...] = ()) -> Answer:
    """The answer to options as the command line gives them."""
    values = read(options, OPTIONS, "sweep")
    need(values, "on", "tokens")
    if "model" in values and "parameters" in values:
        raise QuestionError("--parameters stands instead of MODEL: leave one of them out")
    if "model" not in values and "parameters" not in values:
        raise QuestionError("the question lacks MODEL, or --parameters N with --mfu (simplified)")
    rows = math.prod(
        len(values[name]) for name in ("model", "parameters", "gpus", "tokens", "global_batch_tokens", "seq_len") if name in values
    )
    if rows > MOST:
        raise SpaceError(f"{rows:,} rows are more than {MOST}: give shorter lists, or ask ironlaw plan, which searches")
    if lone := [name for name in EXCHANGE[1:] if name in values and "sites" not in values]:
        raise QuestionError(f"--{lone[0].replace('_', '-')} is of an exchange among --sites N: give that too")
    if values.get("sites", 2.0) < 2.0:
        raise ValueRangeError(f"--sites is {values['sites']:g}: an exchange needs at least two; leave it out for one")
    if "mfu" in values:
        from ironlaw.questions.textbook.sweep import by_hand

        return by_hand(values, folders)
    if odd := [name for name in SIMPLE if name in values]:
        raise QuestionError(f"--{odd[0].replace('_', '-')} belongs to the simplified table: give --mfu too, or --gpus for estimates")
    need(values, "gpus")
    return _full(values, folders)


def run_of(told: tuple[str, float], parameters: float) -> float:
    """Tokens of a run: as given, or by the rule of so many for each parameter."""
    from ironlaw.law import scaling

    kind, amount = told
    return float(scaling.rule_tokens(parameters, amount)) if kind else amount


def _sequences(batch: float, seq_len: float, notes: list[Any]) -> float:
    """Sequences of a batch; where they are not whole, the nearest power of two."""
    from ironlaw.question.assumptions import assume

    count = batch / seq_len
    if count == int(count):
        return count
    if not any(note["name"] == "batches" for note in notes):
        assume(notes, "batches", "the nearest power of two where they are not whole sequences", "default")
    return float(2.0 ** max(round(math.log2(count)), 0))


FULL = (
    Column("model", "model"), Column("tokens", "run", "token"), Column("seq_len", "sequence", "1"), Column("batch", "batch", "token"),
    Column("gpus", "GPUs", "1"), Column("accumulated", "accumulated", "1"), Column("memory", "memory", "B"),
    Column("at_once", "all at once", "B"), Column("fits", "fits"), Column("step", "step", "s"),
    Column("tokens_per_second", "tokens/s", "1"),
    Column("mfu", "MFU", "%"), Column("steps", "steps", "1"), Column("seconds", "run takes", "s"), Column("usd", "USD", "USD"),
    Column("energy", "energy", "J"), Column("why_not", ""),
)  # fmt: skip


def _full(values: dict[str, Any], folders: tuple[str, ...]) -> Answer:
    """Every row by an estimate with the plan it chooses."""
    notes: list[Any] = []
    rows: list[dict[str, Any]] = []
    found, warnings, asked_models = [], [], []
    lists = [values.get(name, (None,)) for name in ("model", "tokens", "seq_len", "global_batch_tokens", "gpus")]
    for model, run, seq_len, batch, gpus in itertools.product(*lists):
        asked = {name: values[name] for name in (*PASSED, "price", "pue") if name in values}
        asked |= {"model": model, "on": values["on"], "gpus": gpus} | ({"seq_len": seq_len} if seq_len else {})
        row, one = _estimated(asked, run, batch, notes, folders)
        rows.append(row)
        asked_models.append(model)
        if one is not None:
            found.append((row, one))
            warnings += one.groups[0].warnings
    fitting = [(row, one) for row, one in found if row["fits"]]
    headline, terms = ["none of these rows has a plan that fits"], []
    if fitting:
        row, one = max(fitting, key=lambda pair: pair[0]["tokens_per_second"])
        group = one.groups[0]
        headline = [
            f"most tokens a second of those that fit: {row['tokens_per_second']:,.0f}, {row['model']} with a batch of "
            f"{units.show(row['batch'], 'token', 4)} in sequences of {row['seq_len']:,.0f} on {row['gpus']:,.0f}",
            "accumulation leaves the memory of a step as it is; all of a rank's batch at once is the column beside it",
        ]
        terms = [group.throughput["tokens_per_second"], group.memory.tree, group.step.tree]
        known_names = {note["name"] for note in notes} | {"seq_len", "global_batch_size"}
        notes += [note for note in group.assumptions if note["name"] not in known_names]
    else:
        warnings += [row["why_not"] for row in rows[:1] if row["why_not"]]
    tables = [Table("rows", f"Runs on {values['on']}, each by estimate", shown(FULL, rows), rows)]
    tables += exchanges(values, rows, asked_models, folders)
    return Answer(f"A sweep of {len(rows)} runs on {values['on']}", headline, tables, terms, {}, notes, warnings, bool(fitting), folders)


def _estimated(
    asked: dict[str, Any], run: tuple[str, float], batch: float | None, notes: list[Any], folders: tuple[str, ...]
) -> tuple[dict[str, Any], Any]:
    """One row and its estimate; a row without a plan says why."""
    from ironlaw.estimate.answer import answer
    from ironlaw.estimate.bind.model import bind_model, plain_model
    from ironlaw.estimate.candidates import DEFAULT_SEQ_LEN
    from ironlaw.estimate.layer.counts import total_parameters
    from ironlaw.law import run as of_run

    record = plain_model(bind_model(asked["model"], folders)[0])
    asked.setdefault("seq_len", float(min(record.max_position_embeddings, DEFAULT_SEQ_LEN)))
    amount = run_of(run, float(total_parameters(record)))
    told: dict[str, Any] = {
        "model": record.name,
        "tokens": amount,
        "seq_len": asked["seq_len"],
        "batch": batch,
        "gpus": asked["gpus"],
        "fits": None,
    }
    if batch:
        asked["global_batch_size"] = _sequences(batch, asked["seq_len"], notes)
        told["batch"] = asked["global_batch_size"] * asked["seq_len"]
    try:
        one = answer({**asked, "tokens": amount}, folders)
    except (UnknownNameError, UnitError):
        raise  # wrong in every row
    except QuestionError as error:
        return {**told, "why_not": str(error)}, None
    row = one.row(0)
    if row["step"]["seconds"] is None:
        return {**told, "why_not": row["warnings"][-1] if row["warnings"] else "no plan divides the batch"}, None
    plan, memory = row["plan"], row["memory"]
    return {
        **told,
        "batch": plan["global_batch_size"] * plan["seq_len"],
        "accumulated": plan["num_microbatches"],
        "memory": memory["device"],
        "at_once": _at_once(asked, plan, folders),
        "fits": memory["fits"],
        "step": row["step"]["seconds"],
        "tokens_per_second": row["throughput"]["tokens_per_second"],
        "mfu": row["throughput"]["mfu"],
        "steps": float(of_run.steps(row["run"]["tokens"], plan["global_batch_size"] * plan["seq_len"])),
        "seconds": row["run"]["days"] * 86400.0,
        "usd": row["run"]["usd"],
        "energy": None if row["run"]["kwh"] is None else row["run"]["kwh"] * 3.6e6,
        "why_not": "" if memory["fits"] else "does not fit",
    }, one


_MESH = ("tp", "pp", "cp", "ep", "dp_replicate", "dp_shard", "zero", "global_batch_size", "seq_len")


def _at_once(asked: Mapping[str, Any], plan: Mapping[str, Any], folders: tuple[str, ...]) -> float | None:
    """Memory of the same plan with a rank's whole batch as one micro-batch: what accumulation saves."""
    from ironlaw.estimate.answer import answer

    if plan["num_microbatches"] == 1:
        return None
    whole_batch = plan["global_batch_size"] / plan["dp"]
    held = {**asked, **{name: float(plan[name]) for name in _MESH}, "sp": plan["sp"], "vpp": 1.0, "micro_batch_size": whole_batch}
    held |= {"recompute": plan["recompute"], "framework": plan["framework"]}
    try:
        row = answer(held, folders).row(0)
    except IronlawError:
        return None
    return None if row["step"]["seconds"] is None else float(row["memory"]["device"])


SITES = (
    Column("model", "model"), Column("batch", "batch", "token"), Column("seq_len", "sequence", "1"), Column("gpus", "GPUs", "1"),
    Column("gradients", "sent", "B"), Column("exchange", "an exchange", "s"), Column("exposed", "waits a step", "s"),
    Column("share", "waiting", "%"), Column("seconds", "run takes", "s"), Column("usd", "USD", "USD"),
    Column("idle", "of it waiting", "USD"),
    Column("why_not", ""),
)  # fmt: skip


def exchanges(values: dict[str, Any], rows: list[dict[str, Any]], asked_models: list[Any], folders: tuple[str, ...]) -> list[Table]:
    """Each row again at so many sites, as ``ironlaw sites`` answers it."""
    if "sites" not in values:
        return []
    from ironlaw.questions.sites import ask, options

    if "parameters" in values:
        raise QuestionError("--sites needs a MODEL: what is exchanged are its gradients")
    passed = [name for name in (*EXCHANGE, *PASSED, "on", "price", "pue", "mfu") if name in values and name in options.OPTIONS]
    made = []
    for row, model in zip(rows, asked_models, strict=True):
        told = {name: row.get(name) for name in ("model", "batch", "seq_len", "gpus")}
        near = math.ceil((row["gpus"] or 1.0) / values["sites"]) * values["sites"]
        asked = {name: values[name] for name in passed} | {
            "model": model,
            "sites": int(values["sites"]),
            "gpus": str(int(near)),
            "tokens": row["tokens"],
        }
        asked |= {"global_batch_tokens": row["batch"]} | ({} if "mfu" in values else {"seq_len": row["seq_len"]})
        try:
            found = ask.ask(asked, folders)
        except (UnknownNameError, UnitError):
            raise
        except QuestionError as error:
            made.append({**told, "gpus": near, "why_not": str(error)})
            continue
        kept = {"exchange": "exchange", "exposed": "exposed", "share": "communication share", "seconds": "seconds", "usd": "cost"}
        made.append({
            **told, "gpus": near, **{key: _one(found[name]) for key, name in kept.items()}, "gradients": _one(found["gradients"]),
            "idle": _one(found["cost of waiting"]), "why_not": "",
        })  # fmt: skip
    return [Table("exchanges", f"The same at {values['sites']:.0f} sites", shown(SITES, made), made)]


def _one(value: Any) -> float:
    return float(value[0]) if getattr(value, "shape", ()) else float(value)


def shown(columns: tuple[Column, ...], rows: list[dict[str, Any]]) -> tuple[Column, ...]:
    """Columns that some row has something in."""
    return tuple(c for c in columns if any(row.get(c.key) not in (None, "") for row in rows))
