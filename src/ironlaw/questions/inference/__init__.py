"""Serve a model, to first order."""
