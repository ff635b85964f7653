"""Checks of a question that need no record: what is missing, and which options contradict each other."""

from __future__ import annotations

from ironlaw.errors import QuestionError
from ironlaw.question.asked import Asked
from ironlaw.question.assumptions import printed

MEANING = {"model": "argument MODEL", "on": "option --on ACCELERATOR", "gpus": "option --gpus N"}


def require(asked: Asked, *names: str) -> None:
    """Refuse a question that lacks one of ``names``."""
    for name in names:
        if name not in asked.given:
            raise QuestionError(f"missing {MEANING[name]}")


def check(asked: Asked) -> None:
    """Refuse options that contradict each other."""
    given = asked.given
    ends = [name for name in ("first_stage_layers", "last_stage_layers") if name in given]
    if ends and (asked.layers_per_stage or asked.count_embedding):
        other = "layers-per-stage" if asked.layers_per_stage else "count-embedding"
        raise QuestionError(f"--{ends[0].replace('_', '-')} and --{other} both place layers: give one of them")
    if asked.mtp_stage is not None and not asked.mtp_stage < len(asked.layers_per_stage):
        raise QuestionError("--mtp-stage needs --layers-per-stage and must be one of its stages, counted from 0")
    if asked.global_batch_tokens is not None and "global_batch_size" in given:
        raise QuestionError("give --global-batch-size (sequences) or --global-batch-tokens, not both")
    for row in asked.rows:
        if asked.layers_per_stage and row.pp not in (None, float(len(asked.layers_per_stage))):
            stages = len(asked.layers_per_stage)
            raise QuestionError(f"--layers-per-stage lists {stages} stages, --pp asks for {printed(row.pp)} stages")
