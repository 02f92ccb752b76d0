"""The steps of a run: one by one, by phase, by rank."""
