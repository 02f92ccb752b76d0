"""The agent as a process: how it is started, elected and woken, and what it reports about itself."""
