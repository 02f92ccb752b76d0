"""The page of alerts and rules."""
