"""What ran between ranks: which kernels communicate, what they moved, and who was waited for."""
