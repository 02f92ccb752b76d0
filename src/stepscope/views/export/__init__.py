"""The export of runs as rows and as JSON."""
