"""Serve a model, to first order."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ironlaw.questions.answer import Answer


def inference(model: Any = None, on: str | None = None, *, catalog: tuple[str, ...] = (), **options: Any) -> Answer:
    """Serve a model to first order: ``inference("llama-3-70b", on="h100-sxm", gpus=8, batch=32)``."""
    from ironlaw.catalog.load import given_folders
    from ironlaw.questions.inference.ask import ask

    return ask({"model": model, "on": on, **options}, given_folders(catalog))
