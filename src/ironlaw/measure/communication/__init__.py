"""Communication between ranks: its kernels, their bytes and bandwidth, and the ranks that others wait for."""
