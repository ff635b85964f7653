"""Compare estimates with published runs: read the runs, score predictions, fit the global constants and error bands."""
