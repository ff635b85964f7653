"""Solve for GPUs, time, tokens, MFU or budget."""

from ironlaw.questions.solve.ask import solve

__all__ = ["solve"]
