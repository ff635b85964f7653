"""Work that takes long, for worker processes of tests: importable there by its name."""

from __future__ import annotations

import os
import time
from pathlib import Path


def sleep(path: str, mine: str, seconds: float) -> None:
    """Write the number of this process into a file, then sleep."""
    del path
    Path(mine).write_text(str(os.getpid()), encoding="utf-8")
    time.sleep(seconds)
