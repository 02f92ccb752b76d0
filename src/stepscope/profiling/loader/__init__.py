"""Throughput of a data loader, and what limits it."""
