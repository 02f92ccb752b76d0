"""A run as rows and as JSON."""
