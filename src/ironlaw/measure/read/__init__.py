"""Readers of traces, snapshots and timelines. Files are untrusted: opened within limits, recognised by content, never executed."""
