"""Measures training steps: phases on the host and GPU clocks, memory, and values that are cheap to read."""
