"""What a run did: traces and logs read into columns, split by what the device waited for, and set against their roofs."""
