"""Values that are cheap to read at the end of a step: allocator, batches, compiler, GC, data loader."""
