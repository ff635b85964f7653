"""Options of ``ironlaw inference``."""

from __future__ import annotations

from ironlaw.question.options import OPTIONS as ESTIMATE
from ironlaw.question.options import Option
from ironlaw.question.readers import one_of, whole
from ironlaw.question.words import length

DEFAULTS = {"gpus": 1.0, "batch": 1.0, "prompt": 1024.0, "generate": 256.0}  # the two types are the 16-bit format of the device
BYTES = {"bf16": 2.0, "fp16": 2.0, "fp8": 1.0, "int4": 0.5}
CACHE_TYPES = ("bf16", "fp16", "fp8")
_DEFAULT_TYPE = "bf16, or fp16 where the device lacks it"
OPTIONS: dict[str, Option] = {
    "model": ESTIMATE["model"],
    "on": ESTIMATE["on"],
    "gpus": Option(whole, "accelerators that serve one copy, by tensor parallelism", decided="1"),
    "batch": Option(whole, "sequences decoded together", decided="1"),
    "prompt": Option(length, "tokens per prompt", "TOKENS", decided="1024"),
    "generate": Option(length, "tokens generated per prompt", "TOKENS", decided="256"),
    "weight_dtype": Option(one_of(tuple(BYTES)), f"type of stored weights: {', '.join(BYTES)}", "NAME", decided=_DEFAULT_TYPE),
    "cache_dtype": Option(one_of(CACHE_TYPES), f"type of the key-value cache: {', '.join(CACHE_TYPES)}", "NAME", decided=_DEFAULT_TYPE),
    "price": ESTIMATE["price"],
    "node": ESTIMATE["node"],
}
EXAMPLES = """\
  ironlaw inference llama-3-70b --on h100-sxm --gpus 8 --batch 32
  ironlaw inference deepseek-v3 --on h200-sxm --gpus 16 --batch 64 --weight-dtype fp8 --prompt 4096
  ironlaw inference llama-3-8b --on rtx-4090 --weight-dtype int4 --explain cache
"""
