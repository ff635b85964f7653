"""Options of ``ironlaw optimize``."""

from __future__ import annotations

from typing import Any, NamedTuple

from ironlaw import units
from ironlaw.errors import ValueRangeError
from ironlaw.question.forms import Form
from ironlaw.question.kinds import kind
from ironlaw.question.options import OPTIONS as ESTIMATE
from ironlaw.question.options import Option, taken_by
from ironlaw.question.readers import positive, switch, whole
from ironlaw.questions.data.options import OPTIONS as DATA


class Sizes(NamedTuple):
    """Sizes below which one accelerator and one machine are enough, and the data from which it is streamed."""

    single: tuple[float, float] = (1e9, 100e9)  # parameters, bytes of data
    machine: tuple[float, float] = (10e9, 1e12)
    streamed: float = 10e12  # bytes of data


@kind("float", "str", unit="1", least=0.0, most=1.0, metavar="SHARE", samples=("45%",))
def percent(value: Any, flag: str) -> float:
    """Read a share from 0 to 1: ``45%``, or ``0.45``."""
    share = units.parse(value, "1", flag)
    if not 0.0 <= share <= 1.0:
        raise ValueRangeError(f"{flag} is {value}, must be from 0 % to 100 %")
    return share


OWN: dict[str, Option] = {
    "most": Option(whole, "most techniques to combine", decided="3"),
    "gpu_utilization": Option(percent, "measured: share of the time the accelerator was busy", "SHARE"),
    "memory_used": Option(percent, "measured: share of the memory in use", "SHARE"),
    "out_of_memory": Option(switch, "measured: the run ended out of memory", decided="off"),
    "data_bound_below": Option(
        percent, "with --gpu-utilization: below it a run counts as data-bound", "SHARE", decided="70%", needs=("gpu_utilization",)
    ),
    "memory_bound_above": Option(
        percent, "with --memory-used: above it a run counts as memory-bound", "SHARE", decided="90%", needs=("memory_used",)
    ),
    "dataset": Option(positive("B"), "size of the data set; a rule of thumb gives the number of machines", "SIZE"),
}
OF_DATA = ("step_time", "batch", "timeline")  # options of ironlaw data that take the place of an estimate, or draw
LOADER = tuple(name for name in DATA if name not in ESTIMATE and name not in OF_DATA)  # they describe the input pipeline
OPTIONS: dict[str, Option] = {**OWN, **taken_by("optimize"), **{name: DATA[name] for name in LOADER}}
MEASURED = ("gpu_utilization", "memory_used", "out_of_memory")
THRESHOLDS = ("data_bound_below", "memory_bound_above")
FORMS = (
    Form("MODEL", when=("model",), needs=("model", "on", "gpus")),
    Form("a measured utilisation without MODEL", when=MEASURED, takes=(*THRESHOLDS, "dataset", "most")),
    Form("MODEL", needs=("model", "on", "gpus")),
)
EXAMPLES = """\
  ironlaw optimize llama-3-8b --on h100-sxm --gpus 64
  ironlaw optimize llama-2-7b --on rtx-4090 --gpus 1 --recompute none
  ironlaw optimize llama-3-70b --on a100-sxm-80gb --gpus 256 --tp 8 --pp 4 --most 5 --json
  ironlaw optimize --gpu-utilization 45% --memory-used 60%
"""
