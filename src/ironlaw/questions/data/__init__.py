"""Whether the input pipeline keeps up with the step."""

from ironlaw.questions.data.ask import data

__all__ = ["data"]
