"""Warnings as records: a code, the option and the values they speak of, a sentence, and what to do."""
