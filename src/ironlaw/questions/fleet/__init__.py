"""Several runs on one reservation: which first, how many accelerators each, what stays idle, and which deadlines are missed."""
