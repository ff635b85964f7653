"""Whether the input pipeline keeps up with the step."""
