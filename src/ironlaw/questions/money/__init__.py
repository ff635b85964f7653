"""What a run costs to rent, reserve or own; its energy and carbon."""

from __future__ import annotations

from typing import Any

from ironlaw.questions.answer import Answer, answer_question


def money(model: Any = None, on: str | None = None, *, catalog: tuple[str, ...] = (), **options: Any) -> Answer:
    """What a run costs: ``money("llama-3-70b", on="h100-sxm", gpus=512, tokens="1T")``."""
    return answer_question("money", {"model": model, "on": on, **options}, catalog)
