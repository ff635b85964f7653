"""Read a model from a Hugging Face ``config.json``, or from dimensions."""
