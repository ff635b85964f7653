"""One question a module, over laws and estimates. Each has OPTIONS, how they are read, and ``ask(options, folders) -> Answer``."""
