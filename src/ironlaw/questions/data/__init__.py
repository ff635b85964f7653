"""Whether the input pipeline keeps up with the step."""

from __future__ import annotations

from typing import Any

from ironlaw.questions.answer import Answer, answer_question


def data(model: Any = None, on: str | None = None, *, catalog: tuple[str, ...] = (), **options: Any) -> Answer:
    """Whether batches arrive in time: ``data(step_time="10ms", batch=1, transform_time="30ms", sample_size="1MB", on="h100-sxm")``."""
    return answer_question("data", {"model": model, "on": on, **options}, catalog)
