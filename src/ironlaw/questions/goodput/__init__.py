"""How often a run fails, and what checkpoints and restarts cost."""

from __future__ import annotations

from typing import Any

from ironlaw.questions.answer import Answer, answer_question


def goodput(model: Any = None, on: str | None = None, *, catalog: tuple[str, ...] = (), **options: Any) -> Answer:
    """What failures cost a run: ``goodput("llama-3.1-405b", on="h100-sxm", gpus=[4096, 16384], tokens="15.6T", tp=8, pp=16)``."""
    return answer_question("goodput", {"model": model, "on": on, **options}, catalog)
