"""What connects accelerators: where a job is placed, slices of a torus, and the links of a process group."""
