"""ironlaw: what a large training run will take, before it runs; and why it took what it took, after.

Every verb of the command line that answers a question is a function of this package: ``estimate``, ``plan``, ``compare``, ``solve`` and
so on; ``dir(ironlaw)`` lists them, and ``help(ironlaw.estimate)`` describes the options of one.

>>> import ironlaw
>>> answer = ironlaw.estimate("llama-3-8b", on="h100-sxm", gpus=8, global_batch_size=64)
>>> bool(answer.fits[0])
True
"""

from __future__ import annotations

import sys
from os.path import exists
from types import ModuleType
from typing import Any

__version__ = "0.1.0"
MODULES = ("estimate", "plan", "search")  # functions whose name a module of the package also has


class _Package(ModuleType):
    """The package. A verb keeps its name when a module of that name is imported, which Python would bind to it."""

    def __setattr__(self, name: str, value: Any) -> None:
        if not (name in MODULES and isinstance(value, ModuleType)):
            super().__setattr__(name, value)

    def __dir__(self) -> list[str]:
        return sorted(__getattr__("__all__"))


def __getattr__(name: str) -> Any:
    """Names of the public interface, made when first used: ``import ironlaw`` alone loads no numpy."""
    if name == "IronlawError":
        from ironlaw.errors import IronlawError

        return IronlawError
    private = name.startswith("_") and name != "__all__"
    if private or (name not in MODULES and _is_module(name)):  # ``from ironlaw import units`` asks for an attribute first
        raise AttributeError(f"module 'ironlaw' has no attribute {name!r}")
    from ironlaw import interface

    if name == "__all__":
        return ["IronlawError", "__version__", *interface.names()]
    if name in interface.names():
        verb = globals()[name] = interface.Verb(name)
        return verb
    raise AttributeError(f"module 'ironlaw' has no attribute {name!r}{interface.hint(name)}")


def _is_module(name: str) -> bool:
    """True for a module or a room of the package."""
    return exists(f"{__path__[0]}/{name}.py") or exists(f"{__path__[0]}/{name}")


sys.modules[__name__].__class__ = _Package
