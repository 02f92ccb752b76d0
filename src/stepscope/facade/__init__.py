"""Classes with the names of older documents, each a thin layer over the real one."""
