"""Cheap figures at the end of sampled steps: allocator, batches, compiler, garbage collector, loader."""
