"""The metrics of a run: which there are, and what each means."""
