"""Compare accelerators for a job."""
