"""Parameters, tokens and compute of least loss; batch and learning rate."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ironlaw.questions.answer import Answer


def scaling(model: Any = None, *, catalog: tuple[str, ...] = (), **options: Any) -> Answer:
    """The size of least loss: ``scaling("llama-3-8b", tokens="15T")``, ``scaling(compute=5.88e23)``."""
    from ironlaw.catalog.load import given_folders
    from ironlaw.questions.scaling.ask import ask

    return ask({"model": model, **options}, given_folders(catalog))
