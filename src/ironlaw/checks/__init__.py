"""Findings about a trainer's configuration: whether it runs, fits, and what is slow, each with its consequence and the change to make."""
