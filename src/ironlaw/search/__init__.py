"""Search: the whole space of plans for a question, by the same laws that answer for one plan.

The package is also the function of its name: ``ironlaw.search("gpt-3-175b", on="a100-sxm-80gb", gpus=1024)``; see
``ironlaw.estimate`` for why a module is called.
"""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any


class _Callable(ModuleType):
    def __call__(self, *args: Any, **options: Any) -> Any:
        """See ``ironlaw.search.answer.search``."""
        from ironlaw.search.answer import search

        return search(*args, **options)


sys.modules[__name__].__class__ = _Callable
