"""What to run with fewer accelerators, and what spare nodes, checkpoints and spot machines are worth."""

from __future__ import annotations

from typing import Any

from ironlaw.questions.answer import Answer, answer_question


def elastic(model: Any = None, on: str | None = None, *, catalog: tuple[str, ...] = (), **options: Any) -> Answer:
    """What to run with less: ``elastic("llama-3-70b", on="h100-sxm", gpus=512, lost="8,33%", repair_time="24h")``."""
    return answer_question("elastic", {"model": model, "on": on, **options}, catalog)
