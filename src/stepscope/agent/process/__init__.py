"""The agent as a process: how it is started, elected, woken, and what it reports of itself."""
