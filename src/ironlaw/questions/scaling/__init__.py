"""Parameters, tokens and compute of least loss; batch and learning rate."""

from ironlaw.questions.scaling.ask import scaling

__all__ = ["scaling"]
