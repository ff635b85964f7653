"""What the source documents print: their simplified models and studies, as printed and corrected."""
