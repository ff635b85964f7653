"""How often a run fails, and what checkpoints and restarts cost."""

from ironlaw.questions.goodput.ask import goodput

__all__ = ["goodput"]
