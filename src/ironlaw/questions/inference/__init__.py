"""Serve a model, to first order."""

from __future__ import annotations

from typing import Any

from ironlaw.questions.answer import Answer, answer_question


def inference(model: Any = None, on: str | None = None, *, catalog: tuple[str, ...] = (), **options: Any) -> Answer:
    """Serve a model to first order: ``inference("llama-3-70b", on="h100-sxm", gpus=8, batch=32)``."""
    return answer_question("inference", {"model": model, "on": on, **options}, catalog)
