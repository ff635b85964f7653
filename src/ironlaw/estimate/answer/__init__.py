"""The answer to one question: columns, trees, error bands, warnings, and its plain data."""
