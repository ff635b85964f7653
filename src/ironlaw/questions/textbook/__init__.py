"""Simplified models and studies of published texts, as printed and corrected."""
