"""Training across data centres."""
