"""Questions about an answer: another option, another number of accelerators, fewer of them, a measured throughput."""
