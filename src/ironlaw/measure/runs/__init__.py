"""Measured runs in a local store: kept, compared, gated, exported with their names hidden."""
