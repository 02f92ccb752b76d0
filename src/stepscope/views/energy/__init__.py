"""Energy, carbon dioxide and cost of a run."""
