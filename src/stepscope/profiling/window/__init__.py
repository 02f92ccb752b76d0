"""Windows of torch's profiler over some steps or seconds of a training."""
