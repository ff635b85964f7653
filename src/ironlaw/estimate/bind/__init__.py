"""From names to numbers: catalogue records meet a question here, before any law runs."""
