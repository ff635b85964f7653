"""Options of ``ironlaw compare``."""

from __future__ import annotations

from ironlaw.question.options import OPTIONS as ESTIMATE
from ironlaw.question.options import Option, at_least_one, one_of, positive, price, share, whole
from ironlaw.question.readers import amount, by_name, names, zero_or_more
from ironlaw.question.words import tokens

PASSED = (  # passed to estimate unchanged
    "precision", "global_batch_size", "global_batch_tokens", "seq_len", "micro_batch_size", "optimizer", "framework", "recompute",
    "tp", "pp", "zero", "overlap", "space", "margin", "gpus_per_domain",
)  # fmt: skip
RESOURCES = ("compute", "hbm", "network")
OPTIONS: dict[str, Option] = {
    "model": ESTIMATE["model"],
    "on": Option(names, "accelerators to compare, by catalogue name, comma separated", "A[,B...]"),
    "gpus": Option(whole, "total accelerators, the same number of each kind"),
    "target_tokens_per_second": Option(amount, "rate to reach, such as 500k; without --gpus, the fewest accelerators that reach it", "R"),
    "price": Option(
        by_name(price), "USD per accelerator hour or provider/term, for all, or A=3.93,B=4.33 (default: newest on-demand price)", "PRICE"
    ),
    **{name: ESTIMATE[name] for name in PASSED},
    "framework": Option(names, "training framework, or a comma list: each is compared (default: the accelerator's usual one)", "A[,B...]"),
    "three_roof": Option(
        one_of(("corrected", "as-printed", "off")),
        "also answer by the three-roof model: corrected, as-printed (by the cost-of-bandwidth note), off (default: corrected)",
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
GROUPS = {  # headings of the help
    "Compare": ("on", "gpus", "target_tokens_per_second", "price"),
    "Three-roof model": (
        "three_roof", "task", "peak", "bandwidth", "nic", "utilization", "parameters", "kappa", "gamma", "alpha_opt", "c_act",
        "gradient_bytes", "dp", "gpus_per_replica", "roofs",
    ),
}  # fmt: skip
EXAMPLES = """\
  ironlaw compare llama-3-70b --on h100-sxm,h200-sxm,b200-sxm --gpus 256
  ironlaw compare llama-3-70b --on h100-sxm,h200-sxm --target-tokens-per-second 200000 --price h100-sxm=3.93,h200-sxm=4.33
"""
