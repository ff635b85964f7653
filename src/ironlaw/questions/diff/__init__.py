"""What changed between two answers: inputs, catalogue, constants, version, and the terms that moved."""
