"""Arguments of ``ironlaw diff``."""

from __future__ import annotations

from ironlaw.question.options import Option
from ironlaw.question.readers import text

ARGUMENTS = ("a", "b")  # arguments instead of MODEL

OPTIONS: dict[str, Option] = {
    "a": Option(text, "answer of ironlaw estimate --json, of ironlaw plan --json (its best plan), or of another verb", "A.json"),
    "b": Option(text, "the answer of the same kind to compare with it", "B.json"),
}
EXAMPLES = """\
  ironlaw diff before.json after.json
  ironlaw diff before.json after.json --format csv:time
"""
