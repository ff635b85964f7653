"""``ironlaw compare``: hardware for a job, side by side."""

from __future__ import annotations

from ironlaw.cli.question import command_of
from ironlaw.questions.compare.options import OPTIONS

EXAMPLES = """\
  ironlaw compare llama-3-70b --on h100-sxm,h200-sxm,b200-sxm --gpus 256
  ironlaw compare llama-3-70b --on h100-sxm,h200-sxm --target-tokens-per-second 200000 --price h100-sxm=3.93,h200-sxm=4.33"""

command = command_of("compare", OPTIONS, "Compare accelerators for a job: count, rate, cost, bound.", EXAMPLES, positional="model")
