"""Pure formulas over arrays. Every law knows numpy and units, and never sees the catalogue."""
