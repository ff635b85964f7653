"""Compare accelerators for a job."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ironlaw.questions.answer import Answer


def compare(model: Any = None, on: Any = None, *, catalog: tuple[str, ...] = (), **options: Any) -> Answer:
    """What each accelerator needs, reaches and costs for one job: ``compare("llama-3-70b", on="h100-sxm,h200-sxm", gpus=256)``."""
    from ironlaw.catalog.load import given_folders
    from ironlaw.questions.compare.ask import ask

    return ask({"model": model, "on": on, **options}, given_folders(catalog))
