"""Kernels: their class by name, the operator that launched them, its FLOPs and bytes, and the roof they are under."""
