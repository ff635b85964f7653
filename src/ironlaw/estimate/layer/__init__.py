"""One layer of a model for one micro-batch on one rank: its sizes, matrix products, memory-bound work, and what is cast."""
