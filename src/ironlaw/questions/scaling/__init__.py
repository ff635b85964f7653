"""Parameters, tokens and compute of least loss; batch and learning rate."""

from __future__ import annotations

from typing import Any

from ironlaw.questions.answer import Answer, answer_question


def scaling(model: Any = None, *, catalog: tuple[str, ...] = (), **options: Any) -> Answer:
    """The size of least loss: ``scaling("llama-3-8b", tokens="15T")``, ``scaling(compute=5.88e23)``."""
    return answer_question("scaling", {"model": model, **options}, catalog)
