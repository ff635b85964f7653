"""Chapters of ``ironlaw textbook``, their options, and the options by which earlier versions asked other verbs for them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from ironlaw.earlier import MOVED
from ironlaw.earlier import OPTIONS as RENAMED
from ironlaw.errors import MissingOptionError, ValueRangeError
from ironlaw.question.forms import Form, OneOf
from ironlaw.question.kinds import kind
from ironlaw.question.options import OPTIONS as ESTIMATE
from ironlaw.question.options import Option, group, taken_by
from ironlaw.question.readers import (
    amount,
    at_least_one,
    by_name,
    days,
    duration,
    list_of,
    one_of,
    positive,
    precision,
    share,
    whole,
    zero_or_more,
)
from ironlaw.question.words import tokens
from ironlaw.questions.compare.options import COMPARE
from ironlaw.questions.data.options import OPTIONS as DATA
from ironlaw.questions.optimize.options import Sizes, percent
from ironlaw.questions.scaling.options import OPTIONS as SCALING
from ironlaw.questions.sweep.options import EXCHANGE
from ironlaw.questions.sweep.options import OPTIONS as SWEEP

STORED = ("disk", "storage_network", "sustained", "access_factor")  # options of ironlaw data
SHAPE = ("model", "seq_len", "micro_batch_size", "tp", "sp", "cp", "pp", "precision", "flash_attention", "framework", "on", "gpus")


@kind("str", gives="Any", metavar="LIST", samples=("1B:100GB,10B:1TB,10TB",))
def sizes(value: Any, flag: str) -> Any:
    """Read the sizes of the rule of scale: parameters and data of one accelerator, those of one machine, data that is streamed."""
    form = f"{flag} is {value}, must be PARAMETERS:BYTES,PARAMETERS:BYTES,BYTES, such as 1B:100GB,10B:1TB,10TB"
    items = str(value).split(",")
    if isinstance(value, Sizes):
        return value
    if len(items) != 3 or any(item.count(":") != count for item, count in zip(items, (1, 1, 0), strict=True)):
        raise ValueRangeError(form)
    pairs = [(tokens(item.partition(":")[0], flag), positive("B")(item.partition(":")[2], flag)) for item in items[:2]]
    found = Sizes(pairs[0], pairs[1], positive("B")(items[2], flag))
    if not (found.single <= found.machine and found.single[1] <= found.machine[1] <= found.streamed):
        raise ValueRangeError(f"{flag} is {value}: sizes must grow from one accelerator to one machine to streamed data")
    return found


OF_TABLES: dict[str, Option] = {
    "parameters": Option(amount, "number of parameters, instead of MODEL, such as 7B", excludes={"model": ""}),
    "mfu": Option(share, "share of the peak that a run reaches", decided="eras: 0.4"),
    "dataset": Option(positive("B"), "size of the data set", "SIZE"),
    "deadline": Option(days, "longest time of the run", decided="14 days"),
    "sizes": Option(sizes, "sizes of the rule of scale", "LIST", decided="1B:100GB,10B:1TB,10TB"),
    "precisions": Option(list_of(precision), "recipes", "LIST", decided="all that --on can multiply"),
    "shares": Option(list_of(percent), "serial shares r", "LIST", decided="0,0.05,0.15,0.4"),
    **{name: DATA[name] for name in STORED},
}
OF_SWEEP: dict[str, Option] = {
    "parameters": Option(list_of(tokens), "instead of MODEL: comma list of parameters, such as 7B,70B", "LIST", excludes={"model": ""}),
    "step_time": Option(duration, "instead of --gpus: time a step may take, such as 1s", excludes={"gpus": ""}),
    "mfu": OF_TABLES["mfu"],
    "accumulate": Option(list_of(whole), "comma list of micro-batches k per step", "LIST", decided="1,5,10,100"),
    **{name: SWEEP[name] for name in ("model", "gpus", "tokens", "global_batch_tokens", "seq_len", "rounding", "sites", *EXCHANGE)},
    **{name: ESTIMATE[name] for name in ("on", "node", "fabric", "precision", "price", "pue")},
}


OF_THREE_ROOF: dict[str, Option] = {
    **{name: COMPARE[name] for name in ("on", "gpus", "target_tokens_per_second", "price")},
    "formulas": Option(
        one_of(("corrected", "as-printed")), "formulas: corrected, or as-printed by the cost-of-bandwidth note", "HOW", decided="corrected"
    ),
    "task": Option(one_of(("training", "inference")), "training, or inference", "WHAT", decided="training"),
    "peak": Option(by_name(positive("FLOP/s")), "peak rate, for all or A=900TFLOP/s,...", "RATE", decided="dense peak"),
    "bandwidth": Option(by_name(positive("B/s")), "HBM bandwidth", "RATE", decided="the catalogue's"),
    "nic": Option(by_name(zero_or_more("B/s")), "network bandwidth, 0 for no network", "RATE", decided="its fabric's"),
    "utilization": Option(by_name(share), "share of the binding roof that is reached, or compute=U,hbm=U,network=U", "U", decided="0.75"),
    "parameters": Option(tokens, "a rounded count of parameters", "N", decided="the model's"),
    "kappa": Option(positive("1"), "FLOP per parameter and token", "K", decided="6; 2 for inference"),
    "gamma": Option(at_least_one, "factor for recomputation, 1.1 to 1.4", "G", decided="1, none"),
    "alpha_opt": Option(zero_or_more("1"), "optimizer bytes moved per parameter and step", "A", decided="the optimizer's"),
    "c_act": Option(zero_or_more("1"), "hidden states moved per token and layer; fused kernels move fewer", "C", decided="6"),
    "gradient_bytes": Option(positive("B"), "bytes of a gradient", "B", decided="2"),
    "dp": Option(whole, "as-printed: data-parallel ranks", decided="8"),
    "gpus_per_replica": Option(whole, "accelerators per replica", decided="the fewest that hold it"),
    "roofs": Option(one_of(("overlap", "serial")), "how compute, HBM and network run: overlap, or serial", "HOW", decided="overlap"),
}


class Chapter(NamedTuple):
    """One chapter: what it shows, and what it takes."""

    shows: str  # for the help text
    takes: tuple[str, ...] = ()  # options that it takes, whether or not a model is given
    of_model: bool = False  # with MODEL it takes every option of an estimate
    of_step: bool = False  # of these, those that set one step alone
    without: tuple[str, ...] = ()  # of these, options that it sets itself
    needs: tuple[str | OneOf, ...] = ()
    excludes: Mapping[str, str] = {}
    options: Mapping[str, Option] = {}  # that it reads in another way than an estimate and the tables


TABLES: dict[str, Chapter] = {
    "optimizers": Chapter("bytes and operations of each", ("model", "parameters", "precision")),
    "checkpoints": Chapter("memory by recompute interval", SHAPE, of_model=True, without=("recompute",)),
    "lora": Chapter("adapters and full fine-tuning", of_model=True, without=("frozen_layers",)),
    "formats": Chapter("number formats", ("on",)),
    "precisions": Chapter("recipes side by side", ("precisions", "on"), of_model=True),
    "communication-tax": Chapter("Amdahl's curve and the estimate", ("shares", "gpus"), of_model=True),
    "fallacies": Chapter(
        "with the numbers against them", ("model", "on", "price", "grid", "pue", "global_batch_size", "seq_len", "framework", "optimizer"),
        without=("gpus",),
    ),
    "eras": Chapter("historic runs and their cost", ("on", "price", "grid", "pue", "mfu")),
    "joules": Chapter("energy of moving a byte", of_model=True, of_step=True),
    "limits": Chapter("hard limits of one machine: memory, time, data", ("dataset", "deadline", "sizes", *STORED), of_model=True),
}  # fmt: skip
CHAPTERS: dict[str, Chapter] = {
    **TABLES,
    "three-roof": Chapter(
        "operations, HBM bytes and network bytes of a token against three rates",
        (
            "model", *OF_THREE_ROOF, "seq_len", "global_batch_tokens", "global_batch_size", "micro_batch_size", "optimizer", "precision",
            "node", "fabric", "scale_up_size", "nic_bandwidth",
        ),
        needs=("model", "on"),
        options=OF_THREE_ROOF,
    ),
    "sweep": Chapter(
        "runs at one share of the peak",
        tuple(OF_SWEEP),
        needs=(
            "mfu", "on", OneOf(("model", "parameters"), "missing MODEL, or --parameters N"), "tokens",
            OneOf(("gpus", "step_time"), "give either --gpus LIST or --step-time TIME, such as 1s"), "global_batch_tokens",
        ),
        excludes={
            "global_batch_size": "it counts sequences, which are not known; give --global-batch-tokens",
            "capacity_factor": "no experts are known; ironlaw sweep takes it",
        },
        options=OF_SWEEP,
    ),
    "ten-sites": Chapter("the study of ten sites, as printed and corrected"),
    "critical-batch": Chapter(
        "the batch by which that study argues, whose law is wrong",
        ("model", "parameters", "tokens", "compute", "tokens_per_parameter"),
        options={name: SCALING[name] for name in ("parameters", "compute", "tokens_per_parameter")},
    ),
}  # fmt: skip
_LISTED = ", ".join(f"{name} ({chapter.shows})" for name, chapter in CHAPTERS.items())
CHAPTER = Option(one_of(tuple(CHAPTERS)), f"one of {_LISTED}", "CHAPTER")


OPTIONS: dict[str, Option] = {
    "chapter": CHAPTER,
    **OF_TABLES,
    **taken_by("textbook"),
    **group("Chapter three-roof", {name: row for name, row in OF_THREE_ROOF.items() if name not in OF_TABLES}),
    **group("Chapter critical-batch", {name: CHAPTERS["critical-batch"].options[name] for name in ("compute", "tokens_per_parameter")}),
    **group("Chapter sweep", {name: row for name, row in OF_SWEEP.items() if row is not ESTIMATE.get(name) and name not in OF_TABLES}),
}
ARGUMENTS = ("chapter", "model")


def options_of(given: Mapping[str, Any]) -> Mapping[str, Option]:
    """The options of the chapter that a question names; MissingOptionError where it names none."""
    if given.get("chapter") is None:
        raise MissingOptionError(f"missing CHAPTER: {', '.join(CHAPTERS)}", option="chapter")
    return {**OPTIONS, **ESTIMATE, **OF_TABLES, **CHAPTERS[CHAPTER.read(given["chapter"], "CHAPTER")].options}


def _forms_of(name: str, chapter: Chapter) -> tuple[Form, ...]:
    """The forms of a chapter: with MODEL it may take the options of an estimate."""
    sets = {**dict.fromkeys(chapter.without, "the table sets it itself; leave it out"), **chapter.excludes}
    alone = Form(
        f"textbook {name}",
        when=("chapter",),
        value=name,
        takes=(*chapter.takes, *(("model",) if chapter.of_model else ())),
        needs=chapter.needs,
        excludes=sets,
    )
    of_model = alone.replace(beside=("model",), takes=(*chapter.takes, *taken_by("roofline" if chapter.of_step else "textbook")))
    return (of_model, alone) if chapter.of_model else (alone,)


FORMS = tuple(form for name, chapter in CHAPTERS.items() for form in _forms_of(name, chapter))
EXAMPLES = """\
  ironlaw textbook optimizers --parameters 7B
  ironlaw textbook checkpoints gpt-3-175b
  ironlaw textbook limits llama-3-8b --on h100-sxm --tokens 200B --dataset 800GB
  ironlaw textbook sweep --parameters 70B --on h100-sxm --tokens 20x,20T --global-batch-tokens 8192,1M,32M --step-time 1s --mfu 0.4
  ironlaw textbook three-roof llama-3-70b --on h100-sxm,h200-sxm --target-tokens-per-second 200k --formulas as-printed
  ironlaw textbook ten-sites
"""


def where_moved(verb: str, name: str) -> str:
    """The chapter that takes an option which a verb took in an earlier version; "" where there is none."""
    chapters = [moved.chapter or "CHAPTER" for moved in MOVED if moved.verb == verb]
    return next((f"ironlaw textbook {chapter}" for chapter in chapters if name in earlier_options(verb, {})), "")


def earlier_options(verb: str, options: Mapping[str, Option]) -> dict[str, Option]:
    """Options by the names of an earlier version, and those that it took for chapters: the command line of a verb still reads them."""
    rows = [moved for moved in MOVED if moved.verb == verb]
    asked = {moved.option: OPTIONS.get(moved.option, CHAPTER) for moved in rows}
    taken = {name: OPTIONS[name] for moved in rows for name in (CHAPTERS[moved.chapter].takes if moved.chapter else OF_TABLES)}
    renamed = {old: options[new] for old, new in RENAMED.get(verb, {}).items() if new in options}
    return {name: option for name, option in {**asked, **taken, **renamed}.items() if name not in options}
