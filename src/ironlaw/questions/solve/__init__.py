"""Solve for GPUs, time, tokens, MFU or budget."""

from __future__ import annotations

from typing import Any

from ironlaw.questions.answer import Answer, answer_question


def solve(model: Any = None, on: str | None = None, *, catalog: tuple[str, ...] = (), **options: Any) -> Answer:
    """Solve for GPUs, time, tokens, MFU or budget: ``solve("llama-3-70b", on="h100-sxm", tokens="2T", deadline=60)``."""
    return answer_question("solve", {"model": model, "on": on, **options}, catalog)
