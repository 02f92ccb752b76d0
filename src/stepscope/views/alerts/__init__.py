"""The list of alerts and rules."""
