"""Records of accelerators, models, frameworks and so on, one TOML file each, with a source for every number."""
