"""Runs trainers from PyPI with and without stepscope, and compares what they did with what was recorded."""
