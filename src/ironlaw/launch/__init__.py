"""Read launch scripts and configurations of other frameworks; ``readers`` has one row a framework."""
