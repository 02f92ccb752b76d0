"""What used the memory when a training ran out of memory."""
