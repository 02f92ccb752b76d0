"""Trains with planted faults and without, and scores what the diagnosis says of each."""
