"""The metrics of a run, and what each means."""
