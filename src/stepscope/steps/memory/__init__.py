"""What held the memory when a training ran out of it."""
