"""Whether the input pipeline keeps up with the step."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ironlaw.questions.answer import Answer


def data(model: Any = None, on: str | None = None, *, catalog: tuple[str, ...] = (), **options: Any) -> Answer:
    """Whether batches arrive in time: ``data(step_time="10ms", batch=1, transform_time="30ms", sample_size="1MB", on="h100-sxm")``."""
    from ironlaw.catalog.load import given_folders
    from ironlaw.questions.data.ask import ask

    return ask({"model": model, "on": on, **options}, given_folders(catalog))
