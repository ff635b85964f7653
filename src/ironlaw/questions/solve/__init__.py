"""Solve for GPUs, time, tokens, MFU or budget."""
