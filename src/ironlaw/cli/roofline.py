"""``ironlaw roofline``: which roof an operator, a step, a collective or a measurement is under."""

from __future__ import annotations

from ironlaw.cli.question import question_command
from ironlaw.questions.roofline.ask import OPTIONS

EXAMPLES = """  ironlaw roofline --on h100-sxm
  ironlaw roofline --gemm 2160,5120,5120 --on h200-sxm --measured 150us
  ironlaw roofline --attention 1,1,4096,64 --on a100-sxm-80gb --causal off
  ironlaw roofline gpt2-xl --on v100-sxm-32gb --gpus 8
  ironlaw roofline --collective all_reduce --size 22.1184MB --ranks 2 --on h200-sxm --measured 0.113ms
  ironlaw roofline --ratio 20/34,20/33 --on h200-sxm --against b200-sxm
  ironlaw roofline --scaling 1:50ms,1.1:55ms,1.5:75ms"""

command = question_command("roofline", OPTIONS, "Bytes, FLOPs and the roof of operators, steps, collectives and measurements.", EXAMPLES)
