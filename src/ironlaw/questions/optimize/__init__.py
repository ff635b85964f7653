"""What each optimisation does to a plan, and tables about training."""
