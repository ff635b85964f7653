"""What each optimisation does to a plan."""
