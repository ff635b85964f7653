"""Parameters, tokens and compute of least loss; batch and learning rate."""
