"""The roof that limits an operator, a step, a collective or a measurement."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ironlaw.questions.answer import Answer


def roofline(model: Any = None, *, catalog: tuple[str, ...] = (), **options: Any) -> Answer:
    """Which roof limits an operator, a step or a collective: ``roofline(gemm=(4096, 4096, 4096), on="h100-sxm", measured="200us")``."""
    from ironlaw.catalog.load import given_folders
    from ironlaw.questions.roofline.ask import ask

    return ask({"model": model, **options}, given_folders(catalog))
