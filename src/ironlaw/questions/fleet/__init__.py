"""Several runs on one reservation: which first, how many accelerators each, what stays idle, and which deadlines are missed."""

from __future__ import annotations

from typing import Any

from ironlaw.questions.answer import Answer, answer_question


def fleet(jobs: str, *, catalog: tuple[str, ...] = (), **options: Any) -> Answer:
    """The schedule of the jobs of a file: ``fleet("jobs.toml", on="h100-sxm", gpus=1024, days=90)``."""
    return answer_question("fleet", {"jobs": jobs, **options}, catalog)
