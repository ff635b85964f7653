"""What each optimisation does to a plan, and tables about training."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ironlaw.questions.answer import Answer


def lessons(model: Any = None, on: str | None = None, *, catalog: tuple[str, ...] = (), **options: Any) -> Answer:
    """What each optimisation does to a plan: ``lessons("llama-3-8b", on="h100-sxm", gpus=64)``."""
    from ironlaw.catalog.load import given_folders
    from ironlaw.questions.lessons.ask import ask

    return ask({"model": model, "on": on, **options}, given_folders(catalog))
