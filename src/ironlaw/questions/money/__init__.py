"""What a run costs to rent or own, its energy and carbon."""

from ironlaw.questions.money.ask import money

__all__ = ["money"]
