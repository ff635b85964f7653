"""Training across data centres."""

from ironlaw.questions.sites.ask import sites

__all__ = ["sites"]
