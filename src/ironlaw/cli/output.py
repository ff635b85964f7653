"""What every verb decides when it prints: colour or none, and the form of JSON."""

from __future__ import annotations

import os
import sys
from typing import Any


def wants_colour() -> bool:
    """Colour on a terminal, unless NO_COLOR is set."""
    return sys.stdout.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def json_text(data: Any) -> str:
    """Plain data as JSON, one space a level; a number that is not finite is an error."""
    import json  # only an answer in JSON pays for the import

    return json.dumps(data, indent=1, allow_nan=False)
