"""From a question to an answer: laws composed into Term trees. Composition only; no formula lives here.

The package is also the function of its name: ``ironlaw.estimate("llama-3-8b", on="h100-sxm", gpus=8)``. Importing any
module of a package binds the package's name in its parent, so a plain function ``ironlaw.estimate`` would be lost at
first use; a module that can be called is both.
"""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any


class _Callable(ModuleType):
    def __call__(self, *args: Any, **options: Any) -> Any:
        """See ``ironlaw.estimate.answer.estimate``."""
        from ironlaw.estimate.answer import estimate

        return estimate(*args, **options)


sys.modules[__name__].__class__ = _Callable
