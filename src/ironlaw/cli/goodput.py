"""``ironlaw goodput``: how often a run fails by size and component, and what checkpoints and restarts cost."""

from __future__ import annotations

from ironlaw.cli.question import command_of
from ironlaw.questions.goodput.options import OPTIONS

EXAMPLES = """\
  ironlaw goodput llama-3.1-405b --on h100-sxm --gpus 4096,16384 --tp 8 --pp 16 --global-batch-size 2048 --tokens 15.6T
  ironlaw goodput --work 54days --parameters 405B --on h100-sxm --gpus 1024,16384,131072 --repair-time 24h
"""
command = command_of("goodput", OPTIONS, "How often a run fails, and what checkpoints and restarts cost.", EXAMPLES, positional="model")
