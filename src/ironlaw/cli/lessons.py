"""``ironlaw lessons``: what each optimisation does to a plan, and tables about training."""

from __future__ import annotations

from ironlaw.cli.question import command_of
from ironlaw.questions.lessons.options import OPTIONS

EXAMPLES = """\
  ironlaw lessons llama-3-8b --on h100-sxm --gpus 64
  ironlaw lessons llama-2-7b --on rtx-4090 --gpus 1 --recompute none
  ironlaw lessons llama-3-70b --on a100-sxm-80gb --gpus 256 --tp 8 --pp 4 --most 5 --json
  ironlaw lessons --gpu-utilization 45% --memory-used 60%
  ironlaw lessons gpt-3-175b --table checkpoints
"""
command = command_of(
    "lessons", OPTIONS, "Try every optimisation on a plan: its gain, its cost, which to combine.", EXAMPLES, positional="model"
)
