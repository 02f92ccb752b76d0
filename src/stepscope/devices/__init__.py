"""Typed access to GPUs and the host; also scripted GPUs for demos and tests."""
