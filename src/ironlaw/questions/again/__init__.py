"""The question of a saved answer, asked again with today's tool: what moved since."""
