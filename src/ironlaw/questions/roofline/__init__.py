"""Which roof an operator, a step, a collective or a measurement is under."""

from ironlaw.questions.roofline.ask import roofline

__all__ = ["roofline"]
