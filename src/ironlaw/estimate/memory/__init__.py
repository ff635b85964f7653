"""What one accelerator holds at the peak of a step, and what its host holds for it."""
