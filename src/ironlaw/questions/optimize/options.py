"""Options of ``ironlaw optimize``, and the tables it has."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ironlaw import units
from ironlaw.errors import ValueRangeError
from ironlaw.question.forms import Form
from ironlaw.question.kinds import kind
from ironlaw.question.options import OPTIONS as ESTIMATE
from ironlaw.question.options import Option, taken_by
from ironlaw.question.readers import amount, days, list_of, one_of, positive, precision, share, switch, whole
from ironlaw.question.words import tokens
from ironlaw.questions.data.options import OPTIONS as DATA

SHAPE = ("model", "seq_len", "micro_batch_size", "tp", "sp", "cp", "pp", "precision", "flash_attention", "framework", "on", "gpus")


@dataclass(frozen=True)
class LessonTable:
    """One table of ``--table``; the module of its name in ``optimize/tables`` answers it."""

    shows: str  # for the help text
    takes: tuple[str, ...] = ()  # options that it takes, whether or not a model is given
    of_model: bool = False  # with MODEL it takes every option of an estimate
    of_step: bool = False  # of these, those that set one step alone
    without: tuple[str, ...] = ()  # of these, options that it sets itself


STORED = ("disk", "storage_network", "sustained", "access_factor")  # options of ironlaw data
TABLES: dict[str, LessonTable] = {
    "optimizers": LessonTable("bytes and operations of each", ("model", "parameters", "precision")),
    "checkpoints": LessonTable("memory by recompute interval", SHAPE, of_model=True, without=("recompute",)),
    "lora": LessonTable("adapters and full fine-tuning", of_model=True, without=("frozen_layers",)),
    "formats": LessonTable("number formats", ("on",)),
    "precisions": LessonTable("recipes side by side", ("precisions", "on"), of_model=True),
    "communication-tax": LessonTable("Amdahl's curve and the estimate", ("shares", "gpus"), of_model=True),
    "fallacies": LessonTable(
        "with the numbers against them", ("model", "on", "price", "grid", "pue", "global_batch_size", "seq_len", "framework", "optimizer"),
        without=("gpus",),
    ),
    "eras": LessonTable("historic runs and their cost", ("on", "price", "grid", "pue", "mfu")),
    "joules": LessonTable("energy of moving a byte", of_model=True, of_step=True),
    "limits": LessonTable("hard limits of one machine: memory, time, data", ("dataset", "deadline", "sizes", *STORED), of_model=True),
}  # fmt: skip


@kind("float", "str", unit="1", least=0.0, most=1.0, metavar="SHARE", samples=("45%",))
def percent(value: Any, flag: str) -> float:
    """Read a share from 0 to 1: ``45%``, or ``0.45``."""
    share = units.parse(value, "1", flag)
    if not 0.0 <= share <= 1.0:
        raise ValueRangeError(f"{flag} is {value}, must be from 0 % to 100 %")
    return share


@kind("str", gives="Any", metavar="LIST", samples=("1B:100GB,10B:1TB,10TB",))
def sizes(value: Any, flag: str) -> Any:
    """Read the sizes of the rule of scale: parameters and data of one accelerator, those of one machine, data that is streamed."""
    from ironlaw.questions.optimize.rules_of_thumb import Sizes

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


OWN: dict[str, Option] = {
    "most": Option(whole, "most techniques to combine", decided="3"),
    "parameters": Option(amount, "with --table optimizers: number of parameters, instead of MODEL, such as 7B", excludes={"model": ""}),
    "mfu": Option(share, "with --table eras: share of the peak that a run reaches today", decided="0.4"),
    "gpu_utilization": Option(percent, "measured: share of the time the accelerator was busy", "SHARE"),
    "memory_used": Option(percent, "measured: share of the memory in use", "SHARE"),
    "out_of_memory": Option(switch, "measured: the run ended out of memory", decided="off"),
    "data_bound_below": Option(
        percent, "with --gpu-utilization: below it a run counts as data-bound", "SHARE", decided="70%", needs=("gpu_utilization",)
    ),
    "memory_bound_above": Option(
        percent, "with --memory-used: above it a run counts as memory-bound", "SHARE", decided="90%", needs=("memory_used",)
    ),
    "dataset": Option(positive("B"), "size of the data set; a rule of thumb, or --table limits, gives the number of machines", "SIZE"),
    "deadline": Option(days, "with --table limits: longest time of the run", decided="14 days"),
    "sizes": Option(sizes, "with --table limits: sizes of the rule of scale", "LIST", decided="1B:100GB,10B:1TB,10TB"),
    "table": Option(one_of(tuple(TABLES)), "table: " + ", ".join(f"{name} ({table.shows})" for name, table in TABLES.items()), "NAME"),
    "precisions": Option(list_of(precision), "with --table precisions: recipes", "LIST", decided="all that --on can multiply"),
    "shares": Option(list_of(percent), "with --table communication-tax: serial shares r", "LIST", decided="0,0.05,0.15,0.4"),
}
OF_DATA = ("step_time", "batch", "timeline")  # options of ironlaw data that take the place of an estimate, or draw
LOADER = tuple(name for name in DATA if name not in ESTIMATE and name not in OF_DATA)  # they describe the input pipeline
OPTIONS: dict[str, Option] = {**OWN, **taken_by("optimize"), **{name: DATA[name] for name in LOADER}}
MEASURED = ("gpu_utilization", "memory_used", "out_of_memory")
THRESHOLDS = ("data_bound_below", "memory_bound_above")


def _forms_of(name: str, table: LessonTable) -> tuple[Form, ...]:
    """The forms of a table: with MODEL it may take the options of an estimate."""
    says, sets = f"--table {name}", dict.fromkeys(table.without, "the table sets it itself; leave it out")
    alone = Form(says, when=("table",), value=name, takes=(*table.takes, *(("model",) if table.of_model else ())), excludes=sets)
    of_model = alone.replace(beside=("model",), takes=(*table.takes, *taken_by("roofline" if table.of_step else "optimize")))
    return (of_model, alone) if table.of_model else (alone,)


_OF_PLAN = (*(name for name in OPTIONS if name not in OWN), "most", "dataset", *MEASURED, *THRESHOLDS)
FORMS = (
    *(form for name, table in TABLES.items() for form in _forms_of(name, table)),
    Form("MODEL", when=("model",), takes=_OF_PLAN, needs=("model", "on", "gpus")),
    Form("a measured utilisation without MODEL", when=MEASURED, takes=(*THRESHOLDS, "dataset", "most")),
    Form("MODEL", takes=_OF_PLAN, needs=("model", "on", "gpus")),
)
EXAMPLES = """\
  ironlaw optimize llama-3-8b --on h100-sxm --gpus 64
  ironlaw optimize llama-2-7b --on rtx-4090 --gpus 1 --recompute none
  ironlaw optimize llama-3-70b --on a100-sxm-80gb --gpus 256 --tp 8 --pp 4 --most 5 --json
  ironlaw optimize --gpu-utilization 45% --memory-used 60%
  ironlaw optimize gpt-3-175b --table checkpoints
  ironlaw optimize llama-3-8b --on h100-sxm --table limits --tokens 200B --dataset 800GB
"""
