"""Memory of one accelerator at the peak of a step, and of its host."""
