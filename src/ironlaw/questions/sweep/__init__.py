"""A table of runs over batch sizes, sequence lengths, models, tokens and counts."""

from __future__ import annotations

from typing import Any

from ironlaw.questions.answer import Answer, answer_question


def sweep(model: Any = None, on: str | None = None, *, catalog: tuple[str, ...] = (), **options: Any) -> Answer:
    """A table of runs: ``sweep("llama-3-8b", on="h100-sxm", gpus=64, tokens="20x", global_batch_tokens=["1M", "4M"])``."""
    return answer_question("sweep", {"model": model, "on": on, **options}, catalog)
