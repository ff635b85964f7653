"""What a stack can run, and what makes a plan legal."""
