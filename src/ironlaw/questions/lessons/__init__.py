"""What each optimisation does to a plan, and tables about training."""

from __future__ import annotations

from typing import Any

from ironlaw.questions.answer import Answer, answer_question


def lessons(model: Any = None, on: str | None = None, *, catalog: tuple[str, ...] = (), **options: Any) -> Answer:
    """What each optimisation does to a plan: ``lessons("llama-3-8b", on="h100-sxm", gpus=64)``."""
    return answer_question("lessons", {"model": model, "on": on, **options}, catalog)
