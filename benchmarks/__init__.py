"""Measures stepscope side by side with its peers."""
