"""ironlaw: what a large training run will take, before it runs; and why it took what it took, after.

>>> import ironlaw
>>> answer = ironlaw.estimate("llama-3-8b", on="h100-sxm", gpus=8, global_batch_size=64)
>>> bool(answer.fits[0])
True
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"
__all__ = ["IronlawError", "__version__", "diagnose", "estimate", "search"]

if TYPE_CHECKING:
    from ironlaw.errors import IronlawError
    from ironlaw.estimate.answer import estimate
    from ironlaw.measure.diagnose import diagnose
    from ironlaw.search.answer import search


def __getattr__(name: str) -> Any:
    """Names of the public interface, imported when first used: ``import ironlaw`` alone loads no numpy."""
    if name in ("estimate", "search"):
        import importlib

        return importlib.import_module(f"ironlaw.{name}")  # a package that can be called
    if name == "diagnose":
        from ironlaw.measure.diagnose import diagnose

        return diagnose
    if name == "IronlawError":
        from ironlaw.errors import IronlawError

        return IronlawError
    raise AttributeError(f"module 'ironlaw' has no attribute {name!r}")
