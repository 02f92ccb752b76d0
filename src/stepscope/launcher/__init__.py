"""Runs commands and trainings, and records them."""
