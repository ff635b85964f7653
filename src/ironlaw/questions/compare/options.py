"""The options of ``ironlaw compare``."""

from __future__ import annotations

from ironlaw.question import options as estimate
from ironlaw.question.options import Option, at_least_one, one_of, positive, price, share, tokens, whole
from ironlaw.question.readers import amount, by_name, names, zero_or_more

PASSED = (  # to estimate, as they are
    "precision", "global_batch_size", "global_batch_tokens", "seq_len", "micro_batch_size", "optimizer", "framework", "recompute",
    "tp", "pp", "zero", "overlap",
)  # fmt: skip
RESOURCES = ("compute", "hbm", "network")
OPTIONS: dict[str, Option] = {
    "model": estimate.OPTIONS["model"],
    "on": Option(names, "accelerators to compare, by catalogue name, comma separated", "A[,B...]"),
    "gpus": Option(whole, "accelerators of each, in all"),
    "target_tokens_per_second": Option(amount, "the rate to reach, such as 500k; without --gpus the fewest that reach it are found", "R"),
    "price": Option(by_name(price), "USD per accelerator hour or provider/term, for all or A=3.93,B=4.33 (default: newest)", "PRICE"),
    **{name: estimate.OPTIONS[name] for name in PASSED},
    "three_roof": Option(one_of(("corrected", "as-printed", "off")), "the first-order model beside: corrected, as-printed, off", "HOW"),
    "task": Option(one_of(("training", "inference")), "what the first-order model counts (default: training)", "WHAT"),
    "peak": Option(by_name(positive("FLOP/s")), "first-order: peak, for all or A=900TFLOP/s,... (default: dense peak)", "RATE"),
    "bandwidth": Option(by_name(positive("B/s")), "first-order: HBM bandwidth (default: catalogue)", "RATE"),
    "nic": Option(by_name(zero_or_more("B/s")), "first-order: network of one accelerator, 0 for none (default: its fabric's)", "RATE"),
    "utilization": Option(
        by_name(share), "first-order: share of its roof that the bound reaches (default 0.75); or compute=U,hbm=U,network=U", "U"
    ),
    "parameters": Option(tokens, "first-order: a round count of parameters (default: the model's)", "N"),
    "kappa": Option(positive("1"), "first-order: FLOP per parameter and token: 6 to train (default), 2 forward only", "K"),
    "gamma": Option(at_least_one, "first-order: recompute multiplier, 1.1 to 1.4 where there is some (default 1)", "G"),
    "alpha_opt": Option(zero_or_more("1"), "first-order: optimizer bytes per parameter and step (default: the optimizer's)", "A"),
    "c_act": Option(zero_or_more("1"), "first-order: hidden states moved per token and layer; fused kernels less (default 6)", "C"),
    "gradient_bytes": Option(positive("B"), "first-order: bytes of a gradient (default 2)", "B"),
    "dp": Option(whole, "first-order, as printed: data-parallel ranks (default 8)"),
    "gpus_per_replica": Option(whole, "first-order: accelerators that share a replica (default: the fewest that hold it)"),
    "roofs": Option(one_of(("overlap", "serial")), "first-order: resources work at once (default) or one after the other", "HOW"),
}
