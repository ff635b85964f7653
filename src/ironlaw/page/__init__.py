"""Answers as HTML: parts that every view shares, a view for each kind of answer, and whole documents.

All of it is drawn from the plain data that ``--json`` prints; nothing is computed here but widths of bars and words.
"""
