"""``ironlaw solve``: GPUs, time, tokens, MFU or budget from the others."""

from __future__ import annotations

from ironlaw.cli.question import command_of
from ironlaw.questions.solve.options import OPTIONS

EXAMPLES = """\
  ironlaw solve llama-3-70b --on h100-sxm --tokens 2T --deadline 60
  ironlaw solve --parameters 30B --on h100-sxm --tokens 2T --deadline 30 --budget 2M --price 4 --mfu 0.45
  ironlaw solve llama-3-8b --on h100-sxm --gpus 256 --tokens 1T --deadline 14 --solve-for mfu"""

command = command_of(
    "solve", OPTIONS, "Any one of GPUs, time, tokens, MFU and budget from the others, with the steps checked.", EXAMPLES, positional="model"
)
