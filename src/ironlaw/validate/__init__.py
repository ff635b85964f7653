"""Predictions against what was measured on runs that others published."""
