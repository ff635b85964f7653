"""Published and own runs near a question: how far they are, what they measured of a plan, and what they correct."""
