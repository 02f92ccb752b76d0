"""Takes a training step apart: phases on two clocks, memory, and evidence that costs next to nothing."""
