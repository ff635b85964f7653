"""``ironlaw sweep``: a table of runs over batches, sequence lengths, models, tokens and counts."""

from __future__ import annotations

from ironlaw.cli.question import command_of
from ironlaw.questions.sweep.options import OPTIONS

EXAMPLES = """\
  ironlaw sweep llama-3-8b,llama-3-70b --on h100-sxm --gpus 256 --tokens 20x --global-batch-tokens 1M,4M,16M
  ironlaw sweep llama-3-8b --on h100-sxm --gpus 64 --tokens 1T --seq-len 4096,8192,32768 --global-batch-tokens 4M
  ironlaw sweep --parameters 70B --on h100-sxm --tokens 20x,20T --global-batch-tokens 8192,1M,32M --step-time 1s --mfu 0.4 --price 2"""

command = command_of(
    "sweep", OPTIONS, "A table of runs over batch sizes, sequence lengths, models, tokens and counts.", EXAMPLES, positional="model"
)
