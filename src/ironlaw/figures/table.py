"""The table of figures: name, the question that it answers, the verb whose answer it draws, and the function that draws it."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from ironlaw.errors import QuestionError, UnknownNameError
from ironlaw.figures import (
    of_compare,
    of_diagnosis,
    of_estimate,
    of_plan,
    of_prices,
    of_roofline,
    of_rows,
    of_sites,
    of_techniques,
    of_validation,
)
from ironlaw.figures.marks import Answer, Row, Spec


class Figure(NamedTuple):
    """A figure: what it answers, the verb whose answer it draws, words that the verb needs, keys that the answer must have."""

    asks: str
    verb: str
    draw: Callable[[Answer], Spec]
    needs: tuple[str, ...]
    words: tuple[str, ...] = ()
    rows: bool = False  # draws several estimates
    example: str = ""


_RUN = "llama-3-70b --on h100-sxm --gpus 512"
_SMALL = "llama-3-8b --on h100-sxm --gpus 8"
_TRACE = "trace.json.gz"
_SITES = (
    "llama-3-70b --on h100-sxm --sites lulea,dublin,ashburn --gpus 2048,1024,2048 --wan-bandwidth 400Gb/s --inner-steps 100 --tokens 15T"
)

FIGURES: dict[str, Figure] = {
    "memory-bar": Figure("does it fit?", "estimate", of_estimate.memory_bar, ("memory.tree",), example=_RUN),
    "roofs": Figure("what binds the step?", "estimate", of_estimate.roofs, ("bound.shares",), example=_RUN),
    "waterfall": Figure("where does the peak go?", "estimate", of_estimate.waterfall, ("mfu_waterfall",), example=_RUN),
    "step-tree": Figure("where does a step go?", "estimate", of_estimate.step_tree, ("step.tree",), example=_RUN),
    "nearest-runs": Figure("what supports this?", "estimate", of_estimate.nearest_runs, ("nearest_runs",), example=_RUN),
    "pipeline": Figure("who waits when?", "estimate", of_estimate.pipeline, ("timeline.events",), ("--timeline",), example=_RUN),
    "batch-curve": Figure(
        "what does the batch change?",
        "estimate",
        of_rows.batch_curve,
        (),
        rows=True,
        example=f"{_RUN} --global-batch-size 256,512,1024,2048",
    ),
    "memory-batch": Figure(
        "what does the micro-batch take?",
        "estimate",
        of_rows.memory_batch,
        (),
        rows=True,
        example=f"{_SMALL} --tp 2 --pp 1 --micro-batch-size 1,2,4",
    ),
    "flop-token": Figure(
        "where does 6 N D come from?",
        "estimate",
        of_rows.flop_token,
        (),
        rows=True,
        example=f"{_SMALL} --tp 2 --pp 1 --seq-len 2k,8k,32k,128k",
    ),
    "scaling": Figure(
        "what do more accelerators give?", "estimate", of_rows.scaling, (), rows=True, example="llama-3-8b --on h100-sxm --gpus 8..512"
    ),
    "pareto-memory": Figure("how much time is memory worth?", "plan", of_plan.pareto_memory, ("pareto", "plans"), example=_RUN),
    "size-money": Figure(
        "how many accelerators?",
        "plan",
        of_plan.size_money,
        ("sizes.by_gpus", "plans"),
        example="llama-3-70b --on h100-sxm --gpus 64..2048 --tokens 15T",
    ),
    "plans": Figure("how do kinds of plans differ?", "plan", of_plan.plans, ("plans", "told_apart"), example=_RUN),
    "advice": Figure("what to buy next?", "plan", of_plan.advice, ("advice", "plans"), example=f"{_RUN} --tokens 15T"),
    "partition": Figure("where did the window go?", "diagnose", of_diagnosis.partition, ("files", "verdict"), example=_TRACE),
    "timeline": Figure("what happened?", "diagnose", of_diagnosis.timeline, ("files", "verdict"), example=_TRACE),
    "gaps": Figure("few long gaps, or many short ones?", "diagnose", of_diagnosis.gaps, ("files", "verdict"), example=_TRACE),
    "roof-gains": Figure("what would help?", "diagnose", of_diagnosis.roof_gains, ("verdict.ranking",), example=_TRACE),
    "measured-predicted": Figure(
        "which term differs?",
        "diagnose",
        of_diagnosis.measured_predicted,
        ("files", "verdict"),
        example=f"{_TRACE} --against estimate.json",
    ),
    "ranks": Figure("which rank is late?", "diagnose", of_diagnosis.ranks, ("files", "verdict"), example="traces/"),
    "roofline": Figure(
        "which roof, and how far below?",
        "roofline",
        of_roofline.roofline,
        ("operators",),
        example="--gemm 256,8192,57344 --batch 1,4,16 --on h100-sxm",
    ),
    "overlap": Figure("what hides communication?", "roofline", of_roofline.overlap, ("hidden",), example=_RUN),
    "error-scatter": Figure("how wrong, and where?", "validate", of_validation.error_scatter, ("predictions", "deciles")),
    "families": Figure("who is predicted well?", "validate", of_validation.families, ("groups",)),
    "coverage": Figure("does the band hold?", "validate", of_validation.coverage, ("bands.groups",)),
    "compare": Figure(
        "which accelerator?",
        "compare",
        of_compare.compare,
        ("estimate", "metrics"),
        example="llama-3-70b --on h100-sxm,b200-sxm,mi300x --gpus 512 --tokens 15T",
    ),
    "money-time": Figure(
        "money or time?",
        "compare",
        of_compare.money_time,
        ("estimate", "metrics"),
        example="llama-3-70b --on h100-sxm,b200-sxm,mi300x --gpus 512 --tokens 15T",
    ),
    "sites-map": Figure("where?", "sites", of_sites.sites_map, ("places", "by_site"), example=_SITES),
    "exchange": Figure("how often to exchange?", "sites", of_sites.exchange, ("intervals", "ways"), example=_SITES),
    "site-step": Figure("which site waits?", "sites", of_sites.site_step, ("waiting_by_site",), example=_SITES),
    "price-history": Figure("what does an hour cost?", "catalog", of_prices.price_history, ("prices",), ("show",), example="h100-sxm"),
    "checkpointing": Figure(
        "what does checkpointing save?",
        "textbook",
        of_techniques.checkpointing,
        ("checkpoints",),
        ("checkpoints",),
        example=f"{_SMALL} --tp 2 --pp 1",
    ),
    "energy-precision": Figure(
        "what energy does a precision take?", "optimize", of_techniques.energy_precision, ("techniques", "base"), example=_SMALL
    ),
}


def figure_of(name: str) -> Figure:
    """The figure of a name; an error names the nearest."""
    if name not in FIGURES:
        raise UnknownNameError("figure", name, FIGURES)
    return FIGURES[name]


def draw(name: str, answer: Answer) -> Spec:
    """The specification of a figure, from the plain data of an answer; an error where the answer is another verb's."""
    found = figure_of(name)
    if found.rows != isinstance(answer, list):
        more = (
            "several estimates: give a list of values, or a file with a list" if found.rows else "one answer: give one value of each option"
        )
        raise QuestionError(f"{name} draws {more}")
    for path in found.needs:
        if _at(answer, path) is None:
            words = " ".join(["ironlaw", found.verb, *found.words])
            raise QuestionError(f"{name} draws an answer of `{words}`: this one has no {path.replace('.', ' ')}")
    return found.draw(answer)


def drawn_of(verb: str, answer: Answer) -> dict[str, Spec]:
    """Every figure that an answer of a verb has."""
    specs = {}
    for name, found in FIGURES.items():
        if found.verb == verb and found.rows == isinstance(answer, list) and all(_at(answer, path) is not None for path in found.needs):
            try:
                specs[name] = found.draw(answer)
            except QuestionError:
                continue  # what it draws is open in this question
    return specs


def _at(answer: Answer, path: str) -> Any:
    """What an answer has at a path of keys; None where it has nothing there."""
    for key in path.split("."):
        if not isinstance(answer, Mapping):
            return None
        answer = answer.get(key)
    return answer


def rows_of(spec: Spec) -> list[Row]:
    """The data of a figure."""
    found: list[Row] = spec["data"]["values"]
    return found


OF_LAYOUT = (
    "from",
    "to",
    "inside",
    "says",
    "row",
    "side",
)  # columns that only say where a mark stands, where their values are texts or edges


def data_of(spec: Spec) -> list[Row]:
    """The data of a figure without what only places its marks."""
    return [
        {key: value for key, value in row.items() if key not in OF_LAYOUT or (key == "inside" and not isinstance(value, str))}
        for row in rows_of(spec)
    ]


def csv_of(spec: Spec) -> str:
    """The data of a figure as CSV."""
    rows, text = data_of(spec), io.StringIO()
    writer = csv.DictWriter(text, list(dict.fromkeys(key for row in rows for key in row)), lineterminator="\n", restval="")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()
