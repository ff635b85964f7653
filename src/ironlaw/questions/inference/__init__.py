"""Serving a model, to first order."""

from ironlaw.questions.inference.ask import inference

__all__ = ["inference"]
