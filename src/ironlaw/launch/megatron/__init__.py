"""Megatron-LM launch arguments as options."""
