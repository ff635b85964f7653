"""Diagnosis of runs: read traces and logs, split the time of the device, find the bottleneck, compare with the estimate."""
