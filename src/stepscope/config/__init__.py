"""Settings: defaults, then YAML, then the environment, then arguments."""
