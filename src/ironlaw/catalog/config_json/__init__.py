"""Hugging Face ``config.json`` files read into a Model, one small function a ``model_type``."""
