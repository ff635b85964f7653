"""A table of runs over batches, sequence lengths, models, tokens and counts."""

from ironlaw.questions.sweep.ask import sweep

__all__ = ["sweep"]
