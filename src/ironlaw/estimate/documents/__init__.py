"""Documents of many lengths: read, packed into sequences, and what ranks with unequal work wait."""
