"""The page that compares published plans with the best of a search, for the terminal and as ``docs/plans-against-published.md``."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ironlaw.question.defaults import OFFLOADS
from ironlaw.report import published_jobs
from ironlaw.report.columns import ratio, set_rows
from ironlaw.report.terminal import markdown_table

_AXES = (("tp", "tp"), ("pp", "pp"), ("vpp", "vpp"), ("cp", "cp"), ("ep", "ep"))
_WORDS = {"sp": "sequence parallelism", "micro_batch_size": "micro-batch", "dp_replicate": "replicas", "dp_shard": "shards",
          "zero": "ZeRO", "recompute": "recomputation", "overlap": "overlap", "moe_dispatcher": "dispatcher"}  # fmt: skip


def plan_words(plan: Mapping[str, Any]) -> str:
    """A plan in a few words.

    >>> plan_words({"tp": 8.0, "pp": 4.0, "vpp": 1.0, "micro_batch_size": 2.0, "zero": 1.0, "recompute": "full"})
    'tp 8, pp 4, ZeRO 1, micro-batch 2, recompute full'
    """
    words = [f"{word} {plan[axis]:g}" for axis, word in _AXES if plan.get(axis, 1.0) > 1.0]
    if plan.get("dp_replicate", 1.0) > 1.0:
        words.append(f"replicas {plan['dp_replicate']:g}")
    words.append(f"ZeRO {plan.get('zero', 0.0):g}")
    words.append(f"micro-batch {plan['micro_batch_size']:g}")
    words.append(f"recompute {plan['recompute']}")
    offloaded = plan.get("offload") or [name for name in OFFLOADS if plan.get(f"offload_{name}")]
    return ", ".join([*words, *(f"{name} in host memory" for name in sorted(offloaded))])


def text(comparison: Mapping[str, Any]) -> str:
    """The comparison in a terminal: every job, then the chosen rows with their terms, then the order of measured plans."""
    rows: list[tuple[str, ...]] = [("row", "measured", "published plan", "our best", "ratio", "with caution", "same stack", "")]
    rows += [(*_cells(row), "within 10 %" if row["close"] else "beyond 10 %") for row in comparison["compared"]]
    lines = [published_jobs.text(comparison["plans"], comparison["jobs"]), ""]
    lines += set_rows(rows, left=(0, 7))
    for plan in comparison["compared"]:
        if not plan["close"]:
            lines += ["", f"{plan['id']}: {_terms(plan['terms'])}", f"  {plan['verdict']}"]
    return "\n".join([*lines, "", _agreement(comparison["orders"]["families"]), _regret(comparison["orders"]["total"])])


def _cells(row: Mapping[str, Any]) -> tuple[str, ...]:
    """The cells that two tables of one plan share: ids, times and ratios."""
    return (
        row["id"],
        f"{row['measured_s']:.2f} s",
        f"{row['published_s']:.2f} s",
        "-" if row["best"] is None else f"{row['best']['seconds']:.2f} s",
        *(ratio(row[name]) for name in ("ratio", "ratio_cautious", "ratio_own")),
    )


def _terms(terms: Sequence[Mapping[str, Any]]) -> str:
    return ", ".join(f"{t['term']} {t['seconds']:+.2f} s" for t in terms) or "no difference"


def _agreement(families: Sequence[Mapping[str, Any]]) -> str:
    """How many measured pairs of plans are predicted in the right order."""
    pairs, right = sum(f["pairs"] for f in families), sum(f["right"] for f in families)
    share = f"{right / max(pairs, 1):.0%}"
    return f"of {pairs} pairs of plans of one job, measured more than 5 % apart, {right} are predicted in the measured order ({share})"


def _regret(total: Mapping[str, Any]) -> str:
    """What running the plan predicted fastest of the measured ones would have lost, and what is aimed at."""
    if not total["jobs"]:
        return "no job was measured with several plans"
    return (
        f"the plan predicted fastest of the measured ones is {total['mean_regret']:.1%} slower than the fastest, in the mean over"
        f" {total['jobs']} jobs, at most {total['worst_regret']:.0%}; aimed at: {total['aim']:.0%} of pairs in order,"
        f" {total['regret_aim']:.0%} lost"
    )


def markdown(comparison: Mapping[str, Any]) -> str:
    """The page ``docs/plans-against-published.md``."""
    plans, jobs = comparison["compared"], published_jobs.markdown(comparison["plans"], comparison["jobs"])
    sections = (_intro(comparison), _plans(plans), _beyond(plans), _orders(comparison["orders"]), _stacks(plans), ("",), jobs)
    return "\n".join(line for section in sections for line in section).rstrip() + "\n"


def _intro(comparison: Mapping[str, Any]) -> Iterator[str]:
    """What the page compares, and its main results."""
    plans = comparison["compared"]
    close = [row for row in plans if row["close"]]
    too_large = sum(not row["fits"] for row in close)
    yield "# Published plans against ours\n"
    yield (
        "Experts published the plans of their runs. This page predicts each of these plans, searches for a better one on the same"
        " machine with the same model, batch, sequence, precision and stack, and names the differences. `ironlaw validate --plans` prints"
        " it; `make docs` updates it. The errors of the predictions are on the page [validation](validation.md).\n"
    )
    yield f"A rule chooses the rows, not their result. {comparison['rule']}.\n"
    yield (
        f"- {len(close)} of {len(plans)} published plans are predicted within 10 % of our best, or faster; {too_large} of these are"
        " predicted not to fit, so a search could not find them."
    )
    yield f"- {_agreement(comparison['orders']['families'])[0].upper()}{_agreement(comparison['orders']['families'])[1:]}; see below."
    crowded = [row for row in plans if row["best"] and row["best"]["bytes"] > 0.95 * row["of_bytes"]]
    offloaded = [row for row in plans if row["best"] and row["best"]["plan"]["offload_optimizer"]]
    yield (
        f"- {len(crowded)} of our best plans use more than 95 % of the memory, and {len(offloaded)} store the optimizer in host memory."
        " *With caution* is the best plan that leaves 5 % of the memory free, where there is one."
    )
    unfit = [row["id"] for row in plans if not row["fits"]]
    if unfit:
        yield f"- {len(unfit)} published plans ran, but are predicted not to fit: {', '.join(unfit)}."
    yield ""


def _plans(plans: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """The tables of all plans: ratios, and the plans in words."""
    yield "## The plans\n"
    yield (
        "Times are step times with the constants that ship. A ratio is the predicted time of the published plan over that of the best plan"
        " of a search: in the whole default space, in that space with caution, and among the plans that the row's stack could run. Below 1,"
        " the search found no plan that is as fast and fits.\n"
    )
    header = ("row", "job", "measured", "published plan", "our best", "ratio", "with caution", "same stack")
    rows = []
    for row in plans:
        cells = _cells(row)
        rows.append((cells[0], f"{row['model']} on {row['gpus']:g} x {row['on']}", *cells[1:]))
    yield from markdown_table(header, rows, 2)
    yield ""
    yield from markdown_table(
        ("row", "published", "our best", "best with the same stack"),
        [(r["id"], plan_words(r["plan"]), *(plan_words(r[k]["plan"]) if r[k] else "-" for k in ("best", "own"))) for r in plans],
        4,
    )
    yield ""


def _beyond(plans: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """The plans whose best is more than 10 % faster, and why."""
    yield "## Beyond 10 %: the terms, and who is right\n"
    yield "Predicted seconds of the published plan minus those of ours, largest terms first.\n"
    for row in plans:
        if row["close"]:
            continue
        yield f"**{row['id']}**, {row['model']}: {_terms(row['terms'])}."
        if row["own"] is not None and row["terms_own"]:
            yield f"With the same stack, ratio {ratio(row['ratio_own'])}: {_terms(row['terms_own'])}."
        yield f"{row['verdict']}\n"


def _orders(orders: Mapping[str, Any]) -> Iterator[str]:
    """How often measured plans of one job are in the predicted order: by family, by axis, by predicted difference."""
    yield "## Order of measured plans\n"
    yield (
        "A search depends on the order of plans. The table has all rows with known plans of which several measure one job. A pair counts"
        " where the measured times differ by more than 5 %; each family is predicted with constants fitted without it. Kendall: 1 all in"
        " order, -1 all reversed. *Loss*: the measured time of the plan that the model would choose over the fastest measured, less 1; the"
        " median and the worst over jobs.\n"
    )
    yield f"{_regret(orders['total'])[0].upper()}{_regret(orders['total'])[1:]}.\n"
    rows = []
    for f in orders["families"]:
        kendall = "-" if f["kendall"] is None else f"{f['kendall']:+.2f}"
        numbers = (f["jobs"], f["plans"], f["pairs"], f["right"])
        loss = (f"{f['median_regret']:.0%}", f"{f['worst_regret']:.0%}")
        rows.append((f["family"], *map(str, numbers), kendall, f"{f['fastest_chosen']} of {f['jobs']}", *loss))
    yield from markdown_table(("family", "jobs", "plans", "pairs", "in order", "Kendall", "fastest chosen", "loss", "worst"), rows)
    for family, why in orders["why"].items():
        yield f"\n{family}: {why}"
    yield "\nBy the axes in which the two plans of a pair differ:\n"
    rows = [(_name_axes(a["axes"]), a["family"], str(a["pairs"]), str(a["right"])) for a in orders["axes"]]
    yield from markdown_table(("differ in", "family", "pairs", "in order"), rows, 2)
    yield (
        "\nBy the predicted difference, for all measured differences. A search treats plans predicted within 5 % of each other as equal,"
        " because only about two in three of such pairs are in order:\n"
    )
    bins = orders["apart"]
    ends = [f"below {b['from']:.0%}" for b in bins[1:]] + [""]
    rows = [(f"from {b['from']:.0%} {end}".strip(), str(b["pairs"]), str(b["right"])) for b, end in zip(bins, ends, strict=True)]
    yield from markdown_table(("predicted apart", "pairs", "in order"), rows)
    yield (
        "\nA search says how likely each plan is the fastest, by the spread of log(predicted ratio / measured ratio). Here each family's"
        " pairs are judged by the spread of the other families, for all measured differences:\n"
    )
    rows = [(f"{b['said']:.0%}", str(b["pairs"]), f"{b['right'] / b['pairs']:.0%}") for b in orders["likely"] if b["pairs"]]
    yield from markdown_table(("said to be in order", "pairs", "in order"), rows)
    yield ""
    yield from _pairs_test(orders)


_LISTED_COLUMNS = (
    "micro_batch_size",
    "tp",
    "pp",
    "vpp",
    "cp",
    "ep",
    "recompute",
    "seq_len",
    "cuda_graphs",
    "moe_dispatch",
    "overlap",
    "zero",
)


def _pairs_test(orders: Mapping[str, Any]) -> Iterator[str]:
    """Measured and predicted effect of one column, with all else equal."""
    yield "## One column at a time\n"
    yield (
        "Of runs of one family that differ in one column alone: how much longer the step is with the second value than with the first,"
        " measured and predicted (geometric means over pairs). *Direction*: changes that are predicted the way they were measured.\n"
    )
    rows = [
        (c["column"], str(c["families"]), str(c["pairs"]), f"{c['median_abs_error']:.1%}", f"{c['right']} of {c['changes']}")
        for c in orders["columns"]
    ]
    yield from markdown_table(("column", "families", "pairs", "median error of the ratio", "direction"), rows)
    yield ""
    changes = [
        (
            f"{c['column']} {c['from']} to {c['to']}",
            c["family"],
            str(c["pairs"]),
            f"{c['measured_ratio']:.2f}",
            f"{c['predicted_ratio']:.2f}",
            f"{c['error']:+.1%}",
        )
        for c in orders["changes"]
        if c["column"] in _LISTED_COLUMNS
    ]
    yield from markdown_table(("change", "family", "pairs", "measured", "predicted", "error"), changes, 2)
    yield ""


def _name_axes(axes: str) -> str:
    return " and ".join(_WORDS.get(name, name) for name in axes.split(" and "))


def _stacks(plans: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """The axes that each family's training stack could vary, and what the search of the whole space leaves out."""
    yield "## Axes of the same stack\n"
    yield (
        "The third search has the row's overlap, offloading and sequence parallelism (on, where the row has no tensor parallelism), and"
        " of the default space only the axes that the stack could vary when the run was measured.\n"
    )
    stacks: dict[str, str] = {}
    for row in plans:
        stacks.setdefault(row["id"].rpartition("-")[0], row["stack"])
    for family, why in stacks.items():
        yield f"- {family}: {why}."
    if plans:
        yield f"\nThe whole default space is searched, except {plans[0]['narrowed']}."
