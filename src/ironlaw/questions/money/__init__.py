"""What a run costs to rent, reserve or own; its energy and carbon."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ironlaw.questions.answer import Answer


def money(model: Any = None, on: str | None = None, *, catalog: tuple[str, ...] = (), **options: Any) -> Answer:
    """What a run costs: ``money("llama-3-70b", on="h100-sxm", gpus=512, tokens="1T")``."""
    from ironlaw.catalog.load import given_folders
    from ironlaw.questions.money.ask import ask

    return ask({"model": model, "on": on, **options}, given_folders(catalog))
