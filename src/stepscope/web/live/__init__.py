"""Sends changes of runs to open pages as they happen."""
