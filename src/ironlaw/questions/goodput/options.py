"""Options of ``ironlaw goodput``."""

from __future__ import annotations

from typing import Any

from ironlaw.errors import ValueRangeError
from ironlaw.question.forms import Form, OneOf
from ironlaw.question.kinds import kind
from ironlaw.question.options import OPTIONS as ESTIMATE
from ironlaw.question.options import Option
from ironlaw.question.readers import at_least_one, counts, duration
from ironlaw.question.words import tokens

MOST_SIZES = 50


@kind("int", "str", "Sequence[int]", gives="tuple[float, ...]", least=1, metavar="LIST", samples=("64,128",))
def sizes(value: Any, flag: str) -> tuple[float, ...]:
    """Read counts: sorted, each once."""
    found = tuple(sorted(counts(value, flag)))
    if len(found) > MOST_SIZES:
        raise ValueRangeError(f"{flag} lists {len(found)} sizes, must be at most {MOST_SIZES}")
    return found


OPTIONS: dict[str, Option] = {
    **ESTIMATE,
    "gpus": Option(sizes, "total accelerators: one count, a comma list such as 1024,4096,16384, or LO..HI, which doubles", "LIST"),
    "tokens": ESTIMATE["tokens"].replace(decided=""),
    "parameters": Option(tokens, "parameters of the model, with --work instead of MODEL, such as 405B", "N"),
    "work": Option(duration, "run time without failures, the same at every size, instead of MODEL and --tokens, such as 54days"),
    "repair_time": Option(duration, "repair time of a failed machine: also computes the spare nodes needed"),
    "shortage_odds": Option(at_least_one, "accept too few spare nodes one time in N", "N", decided="100", needs=("repair_time",)),
}
RUN = "missing run: give MODEL with --tokens, or --work with --parameters"
FORMS = (
    Form(
        "--work and --parameters, which replace the estimate",
        when=("work", "parameters"),
        takes=(
            "repair_time",
            "shortage_odds",
            "on",
            "gpus",
            "node",
            "fabric",
            "scale_up_size",
            "mttf",
            "restart_time",
            "checkpoint_bandwidth",
        ),
        needs=("on", "gpus", OneOf(("work",), RUN), OneOf(("parameters",), RUN)),
        excludes={"checkpoint_every": "it counts steps, and --work has none; give MODEL with --tokens"},
    ),
    Form("MODEL", when=("model",), needs=("on", "gpus", OneOf(("model",), RUN), "tokens")),
)
EXAMPLES = """\
  ironlaw goodput llama-3.1-405b --on h100-sxm --gpus 4096,16384 --tp 8 --pp 16 --global-batch-size 2048 --tokens 15.6T
  ironlaw goodput --work 54days --parameters 405B --on h100-sxm --gpus 1024,16384,131072 --repair-time 24h
"""
