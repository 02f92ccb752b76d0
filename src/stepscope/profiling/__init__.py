"""PyTorch profiler windows, model profile, quantisation impact, loader throughput."""
