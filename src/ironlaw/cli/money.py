"""``ironlaw money``: what a run costs, rented or owned, and its energy and carbon."""

from __future__ import annotations

from ironlaw.cli.question import command_of
from ironlaw.questions.money.options import OPTIONS

EXAMPLES = """\
  ironlaw money llama-3-70b --on h100-sxm --gpus 512 --tokens 1T
  ironlaw money --gpu-hours 1.2M --gpus 1024 --on h100-sxm --purchase-price 30000 --utilisation 60%
"""
command = command_of("money", OPTIONS, "Cost of a run on rented, reserved or bought machines; its energy and carbon.", EXAMPLES, "model")
