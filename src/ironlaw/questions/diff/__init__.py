"""What changed between two answers: inputs, catalogue, constants, version, and the terms that moved."""

from __future__ import annotations

from ironlaw.questions.answer import Answer, answer_question


def diff(a: str, b: str, *, catalog: tuple[str, ...] = ()) -> Answer:
    """The difference of two answers in JSON files: ``diff("a.json", "b.json")``."""
    return answer_question("diff", {"a": a, "b": b}, catalog)
