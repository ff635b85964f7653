"""The roof that limits an operator, a step, a collective or a measurement."""

from __future__ import annotations

from typing import Any

from ironlaw.questions.answer import Answer, answer_question


def roofline(model: Any = None, *, catalog: tuple[str, ...] = (), **options: Any) -> Answer:
    """Which roof limits an operator, a step or a collective: ``roofline(gemm=(4096, 4096, 4096), on="h100-sxm", measured="200us")``."""
    return answer_question("roofline", {"model": model, **options}, catalog)
