"""Options of ``ironlaw inference``."""

from __future__ import annotations

from ironlaw.question.options import OPTIONS as ESTIMATE
from ironlaw.question.options import Option, one_of, whole
from ironlaw.question.words import length

DEFAULTS = {"gpus": 1.0, "batch": 1.0, "prompt": 1024.0, "generate": 256.0, "weight_dtype": "bf16", "cache_dtype": "bf16"}
OPTIONS: dict[str, Option] = {
    "model": ESTIMATE["model"],
    "on": ESTIMATE["on"],
    "gpus": Option(whole, "accelerators that serve one copy, by tensor parallelism (default: 1)"),
    "batch": Option(whole, "sequences decoded together (default: 1)", "N"),
    "prompt": Option(length, "tokens per prompt (default: 1024)", "TOKENS"),
    "generate": Option(length, "tokens generated per prompt (default: 256)", "TOKENS"),
    "weight_dtype": Option(one_of(("bf16", "fp8", "int4")), "type of stored weights: bf16, fp8, int4 (default: bf16)", "NAME"),
    "cache_dtype": Option(one_of(("bf16", "fp8")), "type of the key-value cache: bf16, fp8 (default: bf16)", "NAME"),
    "price": ESTIMATE["price"],
    "node": ESTIMATE["node"],
}
EXAMPLES = """\
  ironlaw inference llama-3-70b --on h100-sxm --gpus 8 --batch 32
  ironlaw inference deepseek-v3 --on h200-sxm --gpus 16 --batch 64 --weight-dtype fp8 --prompt 4096
  ironlaw inference llama-3-8b --on rtx-4090 --weight-dtype int4 --explain cache
"""
