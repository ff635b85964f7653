"""Values for every option, drawn at random: what a careful user may write, and what a careless one does."""

from __future__ import annotations

import random

from ironlaw.catalog import load
from ironlaw.cli.main import command_of
from ironlaw.question import defaults
from ironlaw.question.options import OPTIONS

BY_NAME = {
    "on": ("h100-sxm", "a100-sxm-80gb", "v100-sxm-32gb", "mi300x", "b200-sxm", "rtx-4090"),
    "against": ("b200-sxm", "h100-sxm"),
    "node": ("dgx-h100", "dgx-a100"),
    "fabric": ("infiniband-ndr", "infiniband-hdr"),
    "framework": ("megatron", "fsdp", "torchtitan"),
    "precision": defaults.PRECISIONS,
    "expert_precision": ("bf16", "fp8"),
    "optimizer": tuple(load.names("optimizers")),
    "overlap": (*defaults.OVERLAPS, "none", "all"),
    "offload": (*defaults.OFFLOADS, "none"),
    "recompute": ("none", "full", "selective", "every:2", "share:0.5"),
    "zero": ("0", "1", "2", "3"),
    "lora_targets": ("attention", "all", "q,v"),
    "layers_per_stage": ("16,16", "8,8,8,8"),
    "cuda_graphs": ("none", "full", "attn,mlp"),
    "attention_kernel": ("flash-2", "flash-3"),
    "logits": ("whole", "chunked"),
    "fp8_scaling": ("current", "delayed"),
    "gradient_dtype": ("fp32", "bf16"),
    "weights_dtype": ("fp32", "bf16"),
    "frozen_weights": ("fp8", "nf4", "gptq", "int8"),
    "attention_precision": defaults.ATTENTION_PRECISIONS,
    "dispatch_precision": defaults.DISPATCH_PRECISIONS,
    "moe_dispatcher": defaults.DISPATCHERS,
    "schedule": defaults.SCHEDULES,
    "cp_method": defaults.CP_METHODS,
    "margin": ("0", "5%", "0.3"),
    "tokens": ("1T", "20x", "1e9"),
    "price": ("2.5", "0"),
    "reserved_price": ("1.5",),
    "spot_price": ("1",),
    "grid": ("france", "300", "world"),
    "pue": ("1.1", "1"),
    "mttf": ("50000h",),
    "restart_time": ("15min",),
    "space": ("default",),
    "calibration_version": ("2026.11",),
    "minimize": ("time", "cost", "gpus"),
    "fix": ("tp=1", "zero=1"),
    "forbid": ("pp>2", "tp=8"),
    "quota": ("h100-sxm=512",),
    "pareto": ("time,memory", "cost"),
    "budget": ("2M", "1000"),
    "deadline": ("30", "2w", "12h"),
    "time_limit": ("5",),
    "top": ("3",),
    "formulas": ("corrected", "as-printed"),
    "task": ("training", "inference"),
    "roofs": ("overlap", "serial"),
    "utilization": ("0.5", "compute=0.7"),
    "work": ("54days", "6n", "model"),
    "solve_for": ("gpus", "time", "mfu"),
    "mfu": ("0.4",),
    "sites": ("2", "jean-zay,lumi"),
    "exchange": ("ring", "tree", "pipe"),
    "gradients": ("bf16", "int8"),
    "table": ("checkpoints", "formats", "lora"),
    "shares": ("0.05,0.15",),
    "gemm": ("128,256,512",),
    "attention": ("1,8,1024,64",),
    "norm": ("rmsnorm,1024,1024",),
    "softmax": ("64,64",),
    "activation": ("gelu,64,64",),
    "conv": ("1,3,32,32,8,3",),
    "census": ("resnet-50", "dlrm"),
    "dtype": ("bf16", "fp16"),
    "tile": ("128,128",),
    "collective": ("all_reduce", "all_gather"),
    "ratio": ("20/34",),
    "scaling": ("1:10ms,2:20ms",),
    "fit": ("hoffmann", "besiroglu"),
    "model_of": ("ten-sites",),
    "weight_dtype": ("bf16", "fp8", "int4"),
    "cache_dtype": ("bf16", "fp8"),
    "stages": ("overlapped", "serial"),
    "parameters": ("7B", "70B"),
    "lengths": ("1k,4k",),
    "batch": ("1,8", "4"),
    "inner_steps": ("1", "10"),
    "compute": ("1e23",),
    "residual": ("0.2",),
    "load": ("0.6",),
    "gpus": ("8", "16", "64", "12"),
    "global_batch_size": ("64", "128", "100"),
    "seq_len": ("2048", "4k", "8192"),
    "micro_batch_size": ("1", "2", "4"),
}
BY_METAVAR = {
    "on|off": ("on", "off"),
    "TIME": ("10ms", "2h", "3days"),
    "RATE": ("10GB/s", "1e12"),
    "SIZE": ("1MB", "2GB"),
    "BYTES": ("100KB", "4"),
    "SHARE": ("0.5", "20%"),
    "POWER": ("500W",),
    "USD": ("30000",),
    "PRICE": ("0.1USD/kWh",),
    "TOKENS": ("1M", "4096"),
    "STEPS": ("10", "1000"),
    "X": ("1.2", "2"),
    "HOURS": ("1.2M",),
    "DAYS": ("30",),
    "S": ("3",),
    "R": ("100k",),
    "FLOP": ("1e22",),
    "W": ("1kW",),
}
NONSENSE = (
    "",
    "nan",
    "-1",
    "1e400",
    "banana",
    "0",
    "1,2,,3",
    "+8",
    "\uff11\uff12",
    "on",
    "3GB",
    "a" * 300,
    "99999999999",
    "1e-300",
    "none",
    "all",
    "8..2",
)
FILES = (
    "html",
    "shapes",
    "correction",
    "patterns",
    "kernel_names",
    "against_file",
    "rows",
    "held",
    "csv_file",
    "parquet_file",
    "store",
    "label",
)
QUIET = ("as_json", "how", "short", "quiet", "help_all", "catalog", "explain", "describe_space", "redact", "keep")


def options_of(verb: str) -> dict[str, str]:
    """The options of a verb that have a value, with their metavar."""
    found = {p.name: p.metavar or "N" for p in command_of(verb).params if hasattr(p, "is_flag") and not p.is_flag and not p.hidden}
    return {name: metavar for name, metavar in found.items() if name not in (*FILES, *QUIET, "model")}


def good_value(name: str, metavar: str, draw: random.Random) -> str:
    """A value that a careful user may write."""
    return draw.choice(BY_NAME.get(name) or BY_METAVAR.get(metavar) or ("1", "2", "4"))


def any_value(name: str, metavar: str, draw: random.Random) -> str:
    """A value of a user who is careless one time in six."""
    return draw.choice(NONSENSE) if draw.random() < 1 / 6 else good_value(name, metavar, draw)


assert set(BY_NAME) & set(OPTIONS)
