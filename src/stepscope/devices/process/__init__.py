"""Processes: their trees, memory, loader workers."""
