"""How a process ends: exceptions, exits, signals."""
