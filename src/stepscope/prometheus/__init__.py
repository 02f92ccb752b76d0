"""Metrics for Prometheus: names and units, the state of live runs and machines in memory, and their text."""
