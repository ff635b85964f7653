"""Published plans against ours, for a terminal and for the page that ships. It prints plain data and computes no plan."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

_AXES = (("tp", "tp"), ("pp", "pp"), ("vpp", "vpp"), ("cp", "cp"), ("ep", "ep"))
_WORDS = {"sp": "sequence parallelism", "micro_batch_size": "micro-batch", "dp_replicate": "replicas", "dp_shard": "shards",
          "zero": "ZeRO", "recompute": "recomputation", "overlap": "overlap", "moe_dispatcher": "dispatcher"}  # fmt: skip


def plan_words(plan: Mapping[str, Any]) -> str:
    """A plan in few words.

    >>> plan_words({"tp": 8.0, "pp": 4.0, "vpp": 1.0, "micro_batch_size": 2.0, "zero": 1.0, "recompute": "full"})
    'tp 8, pp 4, ZeRO 1, micro-batch 2, recompute full'
    """
    words = [f"{word} {plan[axis]:g}" for axis, word in _AXES if plan.get(axis, 1.0) > 1.0]
    if plan.get("dp_replicate", 1.0) > 1.0:
        words.append(f"replicas {plan['dp_replicate']:g}")
    words.append(f"ZeRO {plan.get('zero', 0.0):g}")
    words.append(f"micro-batch {plan['micro_batch_size']:g}")
    words.append(f"recompute {plan['recompute']}")
    moved = plan.get("offload") or [name for name in ("optimizer", "activations") if plan.get(f"offload_{name}")]
    return ", ".join([*words, *(f"{name} in the host" for name in sorted(moved))])


def text(found: Mapping[str, Any]) -> str:
    """The comparison in a terminal."""
    rows: list[tuple[str, ...]] = [("row", "measured", "published plan", "our best", "ratio", "with caution", "own stack", "")]
    rows += [(*_line(row), "within 10 %" if row["verdict"].startswith("within") else "beyond 10 %") for row in found["plans"]]
    widths = [max(len(row[k]) for row in rows) for k in range(len(rows[0]))]
    lines = []
    for row in rows:
        cells = [c.ljust(w) if k in (0, 7) else c.rjust(w) for k, (c, w) in enumerate(zip(row, widths, strict=True))]
        lines.append("  ".join(cells).rstrip())
    for plan in found["plans"]:
        if not plan["verdict"].startswith("within"):
            lines += ["", f"{plan['id']}: {_terms(plan['terms'])}", f"  {plan['verdict']}"]
    return "\n".join([*lines, "", _agreement(found["orders"]["families"])])


def _line(row: Mapping[str, Any]) -> tuple[str, ...]:
    return (
        row["id"],
        f"{row['measured_s']:.2f} s",
        f"{row['published_s']:.2f} s",
        "-" if row["best"] is None else f"{row['best']['seconds']:.2f} s",
        *(_ratio(row[name]) for name in ("ratio", "ratio_cautious", "ratio_own")),
    )


def _ratio(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}"


def _terms(terms: Sequence[Mapping[str, Any]]) -> str:
    return ", ".join(f"{t['term']} {t['seconds']:+.2f} s" for t in terms) or "no difference"


def _agreement(families: Sequence[Mapping[str, Any]]) -> str:
    pairs, right = sum(f["pairs"] for f in families), sum(f["right"] for f in families)
    share = f"{right / max(pairs, 1):.0%}"
    return f"of {pairs} pairs of measured plans of one job, more than 5 % apart, {right} are ordered as measured ({share})"


def markdown(found: Mapping[str, Any]) -> str:
    """The page ``docs/plans-against-published.md``."""
    plans = found["plans"]
    return "\n".join([*_intro(found), *_plans(plans), *_beyond(plans), *_orders(found["orders"]), *_stacks(plans)]) + "\n"


def _table(header: tuple[str, ...], rows: Sequence[tuple[str, ...]], left: int = 1) -> list[str]:
    marks = tuple("---" if k < left else "---:" for k in range(len(header)))
    return [f"| {' | '.join(row)} |" for row in (header, marks, *rows)]


def _intro(found: Mapping[str, Any]) -> Iterator[str]:
    plans = found["plans"]
    close = [row for row in plans if row["verdict"] == "within 10 %"]
    hollow = sum(not row["fits"] for row in close)
    yield "# Published plans against ours\n"
    yield (
        "Experts published how they laid out their runs. This page predicts each of these plans, searches for a better one on the same"
        " machine with the same model, batch, sequence, precision and stack, and says where the two part. `ironlaw validate --plans` prints"
        " it; `make docs` writes it anew. How wrong the predictions themselves are, [validation](validation.md) tells.\n"
    )
    yield f"The rows are picked by a rule, not by their result. {found['rule']}.\n"
    yield (
        f"- {len(close)} of {len(plans)} published plans are predicted within 10 % of our best, or faster; {hollow} of these do not fit as"
        " we count, so that a search could not have found them."
    )
    yield f"- {_agreement(found['orders']['families'])[0].upper()}{_agreement(found['orders']['families'])[1:]}; see below."
    crowded = [row for row in plans if row["best"] and row["best"]["bytes"] > 0.95 * row["of_bytes"]]
    moved = [row for row in plans if row["best"] and row["best"]["plan"]["offload_optimizer"]]
    yield (
        f"- {len(crowded)} of our best plans fill more than 95 % of the memory and {len(moved)} keep the optimizer in the host."
        " *With caution* is the best plan that leaves 5 % of the memory free, where there is one."
    )
    unfit = [row["id"] for row in plans if not row["fits"]]
    if unfit:
        yield f"- {len(unfit)} published plans ran though they do not fit as we count: {', '.join(unfit)}."
    yield ""


def _plans(plans: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    yield "## The plans\n"
    yield (
        "Times are of a step, by the constants that ship. A ratio is the published plan's predicted time over that of the best plan of a"
        " search: of the whole default space, of that space with caution, and of what the row's own stack could vary. Below 1 the search"
        " found none as fast that fits.\n"
    )
    header = ("row", "job", "measured", "published plan", "our best", "ratio", "with caution", "own stack")
    rows = []
    for row in plans:
        cells = _line(row)
        rows.append((cells[0], f"{row['model']} on {row['gpus']:g} x {row['on']}", *cells[1:]))
    yield from _table(header, rows, 2)
    yield ""
    yield from _table(
        ("row", "published", "our best", "best with the own stack"),
        [(r["id"], plan_words(r["plan"]), *(plan_words(r[k]["plan"]) if r[k] else "-" for k in ("best", "own"))) for r in plans],
        4,
    )
    yield ""


def _beyond(plans: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    yield "## Beyond 10 %: which term, and who is right\n"
    yield "Seconds by which the published plan is predicted to take longer than ours, the largest terms first; below 0 it takes less.\n"
    for row in plans:
        if row["verdict"] == "within 10 %":
            continue
        yield f"**{row['id']}**, {row['model']}: {_terms(row['terms'])}."
        if row["own"] is not None and row["terms_own"]:
            yield f"With its own stack, ratio {_ratio(row['ratio_own'])}: {_terms(row['terms_own'])}."
        yield f"{row['verdict']}\n"


def _orders(orders: Mapping[str, Any]) -> Iterator[str]:
    yield "## Are measured plans ordered as measured\n"
    yield (
        "A search is worth as much as the order it puts plans in. Here are all rows that ship whose plans are known and of which several"
        " measure one job. A pair counts where the measured times differ by more than 5 %; each family is predicted by constants that"
        " never saw it. Kendall: 1 all in order, -1 all reversed. *Loss*: how much slower than the fastest measured plan the one is that"
        " the model would choose, the median and the worst over jobs.\n"
    )
    rows = []
    for f in orders["families"]:
        kendall = "-" if f["kendall"] is None else f"{f['kendall']:+.2f}"
        numbers = (f["jobs"], f["plans"], f["pairs"], f["right"])
        loss = (f"{f['median_regret']:.0%}", f"{f['worst_regret']:.0%}")
        rows.append((f["family"], *map(str, numbers), kendall, f"{f['fastest_chosen']} of {f['jobs']}", *loss))
    yield from _table(("family", "jobs", "plans", "pairs", "in order", "Kendall", "fastest chosen", "loss", "worst"), rows)
    yield "\nBy what the two plans of a pair differ in:\n"
    rows = [(_in_words(a["axes"]), a["family"], str(a["pairs"]), str(a["right"])) for a in orders["axes"]]
    yield from _table(("differ in", "family", "pairs", "in order"), rows, 2)
    yield (
        "\nBy how far apart the two are predicted, whatever they were measured. Plans that a search predicts closer than 5 % it does not"
        " tell apart, because of such pairs about half are in order:\n"
    )
    bins = orders["apart"]
    ends = [f"below {b['from']:.0%}" for b in bins[1:]] + [""]
    rows = [(f"from {b['from']:.0%} {end}".strip(), str(b["pairs"]), str(b["right"])) for b, end in zip(bins, ends, strict=True)]
    yield from _table(("predicted apart", "pairs", "in order"), rows)
    yield ""


def _in_words(axes: str) -> str:
    return " and ".join(_WORDS.get(name, name) for name in axes.split(" and "))


def _stacks(plans: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    yield "## What an own stack could vary\n"
    yield (
        "The third search keeps the row's overlap, its offloading or none, sequence parallelism as the row or, where it has no tensor"
        " parallelism, on; and of the default space only what the stack could do on the day of the run.\n"
    )
    told: dict[str, str] = {}
    for row in plans:
        told.setdefault(row["id"].rpartition("-")[0], row["stack"])
    for family, why in told.items():
        yield f"- {family}: {why}."
    yield ""
    yield "The default space is searched whole, except " + plans[0]["narrowed"] + "."
