"""Compare accelerators for a job."""

from __future__ import annotations

from typing import Any

from ironlaw.questions.answer import Answer, answer_question


def compare(model: Any = None, on: Any = None, *, catalog: tuple[str, ...] = (), **options: Any) -> Answer:
    """What each accelerator needs, reaches and costs for one job: ``compare("llama-3-70b", on="h100-sxm,h200-sxm", gpus=256)``."""
    return answer_question("compare", {"model": model, "on": on, **options}, catalog)
