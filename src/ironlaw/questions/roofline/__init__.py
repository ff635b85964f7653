"""The roof that limits an operator, a step, a collective or a measurement."""
