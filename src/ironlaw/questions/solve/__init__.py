"""Solve for GPUs, time, tokens, MFU or budget."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ironlaw.questions.answer import Answer


def solve(model: Any = None, on: str | None = None, *, catalog: tuple[str, ...] = (), **options: Any) -> Answer:
    """Any one of GPUs, time, tokens, MFU and budget: ``solve("llama-3-70b", on="h100-sxm", tokens="2T", deadline=60)``."""
    from ironlaw.catalog.load import given_folders
    from ironlaw.questions.solve.ask import ask

    return ask({"model": model, "on": on, **options}, given_folders(catalog))
