"""Options of ``ironlaw lessons``, and the tables it has."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ironlaw import units
from ironlaw.errors import ValueRangeError
from ironlaw.question.options import OPTIONS as ESTIMATE
from ironlaw.question.options import Option, one_of, positive, switch, whole
from ironlaw.question.readers import days, list_of
from ironlaw.question.words import tokens
from ironlaw.questions.data.options import OPTIONS as DATA


@dataclass(frozen=True)
class LessonTable:
    """One table of ``--table``; the module of its name in ``lessons/tables`` answers it."""

    shows: str  # for the help text
    takes: tuple[str, ...] = ()  # options without effect elsewhere


STORED = ("disk", "storage_network", "sustained", "access_factor")  # options of ironlaw data
TABLES: dict[str, LessonTable] = {
    "optimizers": LessonTable("bytes of each"),
    "checkpoints": LessonTable("memory by recompute interval"),
    "lora": LessonTable("adapters and full fine-tuning"),
    "formats": LessonTable("number formats"),
    "communication-tax": LessonTable("Amdahl's curve and the estimate", ("shares",)),
    "fallacies": LessonTable("with the numbers against them"),
    "eras": LessonTable("historic runs and their cost", ("price", "grid", "pue")),
    "joules": LessonTable("energy of moving a byte"),
    "limits": LessonTable("hard limits of one machine: memory, time, data", ("dataset", "deadline", "sizes", *STORED)),
}


def percent(value: Any, flag: str) -> float:
    """Read a share from 0 to 1: ``45%``, or ``0.45``."""
    share = units.parse(value, "1", flag)
    if not 0.0 <= share <= 1.0:
        raise ValueRangeError(f"{flag} is {value}, must be from 0 % to 100 %")
    return share


def sizes(value: Any, flag: str) -> Any:
    """Read the sizes of the rule of scale: parameters and data of one accelerator, those of one machine, data that is streamed."""
    from ironlaw.questions.lessons.rules_of_thumb import Sizes

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
    "most": Option(whole, "most techniques to combine (default: 3)", "N"),
    "gpu_utilization": Option(percent, "measured: share of the time the accelerator was busy", "SHARE"),
    "memory_used": Option(percent, "measured: share of the memory in use", "SHARE"),
    "out_of_memory": Option(switch, "measured: the run ended out of memory (default: off)", "on|off"),
    "dataset": Option(positive("B"), "size of the data set; a rule of thumb, or --table limits, gives the number of machines", "SIZE"),
    "deadline": Option(days, "with --table limits: longest time of the run (default: 14 days)", "DAYS"),
    "sizes": Option(sizes, "with --table limits: sizes of the rule of scale (default: 1B:100GB,10B:1TB,10TB)", "LIST"),
    **{name: DATA[name].replace(help=f"with --table limits: {DATA[name].help}") for name in STORED},
    "table": Option(one_of(tuple(TABLES)), "table: " + ", ".join(f"{name} ({table.shows})" for name, table in TABLES.items()), "NAME"),
    "shares": Option(list_of(percent), "with --table communication-tax: serial shares r (default: 0,0.05,0.15,0.4)", "LIST"),
}
WITHOUT_EFFECT = ("evaluate_every", "evaluation_tokens", "checkpoint_every", "checkpoint_bandwidth", "mttf", "restart_time")
OPTIONS: dict[str, Option] = {**OWN, **{name: option for name, option in ESTIMATE.items() if name not in WITHOUT_EFFECT}}
EXAMPLES = """\
  ironlaw lessons llama-3-8b --on h100-sxm --gpus 64
  ironlaw lessons llama-2-7b --on rtx-4090 --gpus 1 --recompute none
  ironlaw lessons llama-3-70b --on a100-sxm-80gb --gpus 256 --tp 8 --pp 4 --most 5 --json
  ironlaw lessons --gpu-utilization 45% --memory-used 60%
  ironlaw lessons gpt-3-175b --table checkpoints
  ironlaw lessons llama-3-8b --on h100-sxm --table limits --tokens 200B --dataset 800GB
"""
