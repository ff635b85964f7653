"""What a run costs to rent, reserve or own; its energy and carbon."""
