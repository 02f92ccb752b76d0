"""Structured log files of a run."""
