"""Options of ``ironlaw compare``."""

from __future__ import annotations

from typing import Any

from ironlaw.question import defaults
from ironlaw.question.forms import Form
from ironlaw.question.kinds import kind
from ironlaw.question.options import OPTIONS as ESTIMATE
from ironlaw.question.options import Option, group
from ironlaw.question.readers import amount, by_name, days, list_of, money, names, one_of, positive, price, switch, whole

GOALS = ("cost", "time", "energy", "carbon", "gpus")
SWITCHES = "switches"  # value of --network-power: the switches that are counted


@kind("float", "str", gives="float | str", unit="W", metavar="POWER", samples=(SWITCHES, "50W"))
def network_power(value: Any, flag: str) -> float | str:
    """Read power per accelerator, or ``switches``: that of the counted switches."""
    return SWITCHES if str(value).strip().lower() == SWITCHES else positive("W")(value, flag)


OWN_FORM = ("model", "on", "gpus", "price", "framework")  # options of an estimate that have another form here
PASSED = tuple(name for name in ESTIMATE if name not in OWN_FORM)  # passed to estimate unchanged
COMPARE: dict[str, Option] = {
    "on": Option(names, "accelerators to compare, by catalogue name, comma separated", "A[,B...]", records="accelerators"),
    "gpus": Option(list_of(whole), "total accelerators, the same number of each kind, or a comma list of numbers", "N[,M...]"),
    "target_tokens_per_second": Option(
        list_of(amount),
        "rate to reach, such as 500k, or a comma list of rates; without --gpus, the fewest accelerators that reach it",
        "R[,S...]",
    ),
    "deadline": Option(days, "longest time of the run, in days; without --gpus, the fewest accelerators that meet it", needs=("tokens",)),
    "budget": Option(
        money,
        "highest cost of the run, such as 2M; without --gpus or --deadline, the most accelerators that it pays for",
        needs=("tokens",),
    ),
    "power_limit": Option(
        positive("W"),
        "highest power of the facility, rated power times PUE, such as 5MW; without other limits, the most accelerators that it feeds",
        "POWER",
    ),
    "minimize": Option(
        one_of(GOALS),
        f"what the best row is best in: {', '.join(GOALS)}",
        "GOAL",
        decided="cost; time with a budget or a power limit alone",
    ),
    "price": Option(
        by_name(price), "USD per accelerator hour or provider/term, for all, or A=3.93,B=4.33", "PRICE", decided="newest on-demand price"
    ),
    "framework": Option(
        names,
        "training framework, or a comma list: each is compared",
        "A[,B...]",
        records="frameworks",
        decided="the accelerator's usual one",
    ),
    "flags": Option(switch, "list the launch flags of each plan", decided="on where several frameworks are compared"),
    "network_power": Option(
        network_power, "power of switches per accelerator, or switches: that of the counted ones", "POWER", decided="not counted"
    ),
    "checkpoints_kept": Option(whole, "checkpoints kept in storage", decided=f"{defaults.CHECKPOINTS_KEPT:g}"),
}
OPTIONS: dict[str, Option] = {"model": ESTIMATE["model"], **group("Compare", COMPARE), **{name: ESTIMATE[name] for name in PASSED}}
FORMS = (Form("ironlaw compare", needs=("model", "on")),)
EXAMPLES = """\
  ironlaw compare llama-3-70b --on h100-sxm,h200-sxm,b200-sxm --gpus 256,512 --tokens 2T
  ironlaw compare llama-3-70b --on h100-sxm,h200-sxm --target-tokens-per-second 200k --price h100-sxm=3.93,h200-sxm=4.33
  ironlaw compare llama-3-70b --on h100-sxm,gb200 --tokens 15T --deadline 60 --power-limit 5MW
  ironlaw compare llama-3-8b --on h100-sxm --gpus 64 --framework megatron,torchtitan-compile
"""
