"""What each optimisation does to a plan."""

from ironlaw.questions.lessons.ask import lessons

__all__ = ["lessons"]
