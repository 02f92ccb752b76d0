"""What a run printed and logged, and why it failed."""
