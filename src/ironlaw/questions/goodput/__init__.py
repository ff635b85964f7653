"""How often a run fails, and what checkpoints and restarts cost."""
