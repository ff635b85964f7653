"""Training across data centres."""

from __future__ import annotations

from typing import Any

from ironlaw.questions.answer import Answer, answer_question


def sites(model: Any = None, *, catalog: tuple[str, ...] = (), **options: Any) -> Answer:
    """Train at several sites: ``sites("llama-3-70b", sites="ashburn,lulea", on="h100-sxm", gpus=2048, price={"lulea": 1.5}, ...)``."""
    return answer_question("sites", {"model": model, **options}, catalog)
