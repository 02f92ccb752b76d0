"""Starts commands and trainings under observation."""
