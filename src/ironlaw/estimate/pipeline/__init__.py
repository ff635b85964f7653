"""Pipeline stages: which layers each holds, and how many micro-batches are in flight."""
