"""The profile of a model: latency, memory, operations, quantisation."""
