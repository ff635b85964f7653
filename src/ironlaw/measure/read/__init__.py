"""Readers of what a profiler leaves, from files nobody vouches for: opened within limits, known by content, never executed."""
