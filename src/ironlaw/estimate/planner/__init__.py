"""The planner: the space of plans of a question, its legal mesh rows, and the best plan in it, exactly."""
