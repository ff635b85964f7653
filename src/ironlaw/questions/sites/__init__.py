"""Training across data centres."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ironlaw.questions.answer import Answer


def sites(model: Any = None, *, catalog: tuple[str, ...] = (), **options: Any) -> Answer:
    """Train at several sites: ``sites("llama-3-70b", sites="jean-zay,el-capitan", on="h100-sxm", gpus=2048, ...)``."""
    from ironlaw.catalog.load import given_folders
    from ironlaw.questions.sites.ask import ask

    return ask({"model": model, **options}, given_folders(catalog))
