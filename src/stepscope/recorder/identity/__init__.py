"""Which run, segment and rank a process records, and facts about the process."""
