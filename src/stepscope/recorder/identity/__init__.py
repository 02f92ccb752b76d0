"""Which run, segment and rank a process records, and what it says of itself."""
