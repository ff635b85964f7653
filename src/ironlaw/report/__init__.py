"""An answer as text, as data, as an explanation. Nothing is computed here."""
