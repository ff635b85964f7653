"""What to run with fewer accelerators, and what spare nodes, checkpoints and spot machines are worth."""
