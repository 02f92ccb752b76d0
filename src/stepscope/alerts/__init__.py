"""Decides when a person is told, what, and by which channel."""
