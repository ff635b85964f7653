"""The local store of measured runs: save, compare, gate, export with private names hidden."""
