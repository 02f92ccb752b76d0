"""Waiting for other ranks: gradients that are ready, exchanges of sharded models."""
