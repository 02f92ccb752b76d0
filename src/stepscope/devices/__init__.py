"""Typed access to GPUs and host; also a scripted device for demos and tests."""
