"""Read the configuration files of trainers: one table a trainer, in ``data``; nothing in a file is run."""
