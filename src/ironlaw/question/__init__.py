"""The options of a question: how each is read, its default, and checks. Imports no numpy."""
