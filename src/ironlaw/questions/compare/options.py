"""Options of ``ironlaw compare``."""

from __future__ import annotations

from typing import Any

from ironlaw.question import defaults
from ironlaw.question.options import OPTIONS as ESTIMATE
from ironlaw.question.options import Option, at_least_one, one_of, positive, price, share, switch, whole
from ironlaw.question.readers import amount, by_name, days, list_of, money, names, zero_or_more
from ironlaw.question.words import tokens

GOALS = ("cost", "time", "energy", "carbon", "gpus")
SWITCHES = "switches"  # value of --network-power: the switches that are counted


def network_power(value: Any, flag: str) -> float | str:
    """Read power per accelerator, or ``switches``: that of the counted switches."""
    return SWITCHES if str(value).strip().lower() == SWITCHES else positive("W")(value, flag)


OWN_FORM = ("model", "on", "gpus", "price", "framework")  # options of an estimate that have another form here
PASSED = tuple(name for name in ESTIMATE if name not in OWN_FORM)  # passed to estimate unchanged
RESOURCES = ("compute", "hbm", "network")
COMPARE: dict[str, Option] = {
    "on": Option(names, "accelerators to compare, by catalogue name, comma separated", "A[,B...]"),
    "gpus": Option(list_of(whole), "total accelerators, the same number of each kind, or a comma list of numbers", "N[,M...]"),
    "target_tokens_per_second": Option(
        list_of(amount),
        "rate to reach, such as 500k, or a comma list of rates; without --gpus, the fewest accelerators that reach it",
        "R[,S...]",
    ),
    "deadline": Option(days, "longest time of the run, in days; without --gpus, the fewest accelerators that meet it", "DAYS"),
    "budget": Option(
        money, "highest cost of the run, such as 2M; without --gpus or --deadline, the most accelerators that it pays for", "USD"
    ),
    "power_limit": Option(
        positive("W"),
        "highest power of the facility, rated power times PUE, such as 5MW; without other limits, the most accelerators that it feeds",
        "POWER",
    ),
    "minimize": Option(
        one_of(GOALS),
        f"what the best row is best in: {', '.join(GOALS)} (default: cost; time with a budget or a power limit alone)",
        "GOAL",
    ),
    "price": Option(
        by_name(price), "USD per accelerator hour or provider/term, for all, or A=3.93,B=4.33 (default: newest on-demand price)", "PRICE"
    ),
    "framework": Option(names, "training framework, or a comma list: each is compared (default: the accelerator's usual one)", "A[,B...]"),
    "flags": Option(switch, "list the launch flags of each plan (default: on where several frameworks are compared)", "on|off"),
    "network_power": Option(
        network_power, "power of switches per accelerator, or switches: that of the counted ones (default: not counted)", "POWER"
    ),
    "checkpoints_kept": Option(whole, f"checkpoints kept in storage (default: {defaults.CHECKPOINTS_KEPT:g})", "N"),
}
THREE_ROOF: dict[str, Option] = {
    "three_roof": Option(
        one_of(("corrected", "as-printed", "off")),
        "also answer by the three-roof model: corrected, as-printed (by the cost-of-bandwidth note), off (default: corrected where"
        " another option of this model is given, else off)",
        "HOW",
    ),
    "task": Option(one_of(("training", "inference")), "three-roof: training, or inference (default: training)", "WHAT"),
    "peak": Option(by_name(positive("FLOP/s")), "three-roof: peak rate, for all or A=900TFLOP/s,... (default: dense peak)", "RATE"),
    "bandwidth": Option(by_name(positive("B/s")), "three-roof: HBM bandwidth (default: the catalogue's)", "RATE"),
    "nic": Option(by_name(zero_or_more("B/s")), "three-roof: network bandwidth, 0 for no network (default: its fabric's)", "RATE"),
    "utilization": Option(
        by_name(share), "three-roof: share of the binding roof that is reached, or compute=U,hbm=U,network=U (default: 0.75)", "U"
    ),
    "parameters": Option(tokens, "three-roof: a rounded count of parameters (default: the model's)", "N"),
    "kappa": Option(positive("1"), "three-roof: FLOP per parameter and token (default: 6; 2 for inference)", "K"),
    "gamma": Option(at_least_one, "three-roof: factor for recomputation, 1.1 to 1.4 (default: 1, none)", "G"),
    "alpha_opt": Option(zero_or_more("1"), "three-roof: optimizer bytes moved per parameter and step (default: the optimizer's)", "A"),
    "c_act": Option(zero_or_more("1"), "three-roof: hidden states moved per token and layer; fused kernels move fewer (default: 6)", "C"),
    "gradient_bytes": Option(positive("B"), "three-roof: bytes of a gradient (default: 2)", "B"),
    "dp": Option(whole, "three-roof, as-printed: data-parallel ranks (default: 8)"),
    "gpus_per_replica": Option(whole, "three-roof: accelerators per replica (default: the fewest that hold it)"),
    "roofs": Option(
        one_of(("overlap", "serial")), "three-roof: how compute, HBM and network run: overlap, or serial (default: overlap)", "HOW"
    ),
}
OPTIONS: dict[str, Option] = {"model": ESTIMATE["model"], **COMPARE, **{name: ESTIMATE[name] for name in PASSED}, **THREE_ROOF}
GROUPS = {"Compare": tuple(COMPARE), "Three-roof model": tuple(THREE_ROOF)}  # headings of the help
EXAMPLES = """\
  ironlaw compare llama-3-70b --on h100-sxm,h200-sxm,b200-sxm --gpus 256,512 --tokens 2T
  ironlaw compare llama-3-70b --on h100-sxm,h200-sxm --target-tokens-per-second 200k --price h100-sxm=3.93,h200-sxm=4.33
  ironlaw compare llama-3-70b --on h100-sxm,gb200 --tokens 15T --deadline 60 --power-limit 5MW
  ironlaw compare llama-3-8b --on h100-sxm --gpus 64 --framework megatron,torchtitan-compile
"""
