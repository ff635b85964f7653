"""A table of runs over batch sizes, sequence lengths, models, tokens and counts."""
