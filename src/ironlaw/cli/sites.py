"""``ironlaw sites``: training across data centres."""

from __future__ import annotations

from ironlaw.cli.question import command_of
from ironlaw.questions.sites.options import OPTIONS

EXAMPLES = """\
  ironlaw sites llama-3-70b --sites jean-zay,el-capitan --on h100-sxm --gpus 2048 --wan-bandwidth 10GB/s --tokens 1.4T
  ironlaw sites llama-3-70b --sites lumi,46.02,8.96 --on h100-sxm --gpus 2048 --wan-bandwidth 1GB/s --tokens 1T --every 50 --gradients int8
  ironlaw sites --model-of ten-sites
"""

command = command_of("sites", OPTIONS, "Train across data centres: distance, exchange, waiting, cost, power and carbon.", EXAMPLES, "model")
