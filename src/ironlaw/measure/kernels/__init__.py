"""Kernels: their class, the operator that launched them, its FLOPs and bytes, and the roof that limits them."""
