"""Runs in a notebook: their picture under a cell, the page in a frame, cells that are recorded as runs."""
