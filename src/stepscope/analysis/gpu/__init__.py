"""Reads of GPUs: what limits the steps, number formats, memory."""
