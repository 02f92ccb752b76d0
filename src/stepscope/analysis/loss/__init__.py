"""Judges the shape of a loss curve: spikes, divergence, lasting rises."""
