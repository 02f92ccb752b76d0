"""The comparison of runs."""
