"""``ironlaw inference``: serve a model, to first order."""

from __future__ import annotations

from ironlaw.cli.question import command_of
from ironlaw.questions.inference.options import OPTIONS

EXAMPLES = """\
  ironlaw inference llama-3-70b --on h100-sxm --gpus 8 --batch 32
  ironlaw inference deepseek-v3 --on h200-sxm --gpus 16 --batch 64 --weight-dtype fp8 --prompt 4096
  ironlaw inference llama-3-8b --on rtx-4090 --weight-dtype int4 --explain cache
"""
command = command_of(
    "inference", OPTIONS, "Serve a model, to first order: cache, prompt, tokens a second, what binds.", EXAMPLES, positional="model"
)
