"""What the machines of a run did: GPUs, processors, memory and its leaks."""
