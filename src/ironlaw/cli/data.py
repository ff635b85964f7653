"""``ironlaw data``: whether storage, workers and transfers keep up with the step."""

from __future__ import annotations

from ironlaw.cli.question import command_of
from ironlaw.questions.data.options import OPTIONS

EXAMPLES = """\
  ironlaw data llama-3-8b --on h100-sxm --gpus 64 --token-rate 500k --shared-storage 10GB/s
  ironlaw data --step-time 100ms --batch 256 --sample-size 150KB --memory-size 600KB --transform-time 8ms --on h100-sxm --disk 3.5GB/s
"""
command = command_of("data", OPTIONS, "Whether storage, workers and transfers keep up with the step.", EXAMPLES, positional="model")
