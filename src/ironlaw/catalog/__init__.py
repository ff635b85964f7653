"""What ironlaw knows: records with sources, read from one TOML file a thing."""
