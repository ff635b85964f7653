"""Arguments of ``ironlaw again``."""

from __future__ import annotations

from ironlaw.question.options import Option
from ironlaw.question.readers import text

ARGUMENTS = ("file",)  # arguments instead of MODEL

OPTIONS: dict[str, Option] = {
    "file": Option(text, "answer of any verb but diagnose, from --json or from the report that --html wrote", "FILE")
}
EXAMPLES = """\
  ironlaw again answer.json
  ironlaw again report.html --json
"""
