"""Comparison of a measured step with the estimate of the same run, term by term."""
