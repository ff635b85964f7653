"""Compare accelerators for a job."""

from ironlaw.questions.compare.ask import compare

__all__ = ["compare"]
