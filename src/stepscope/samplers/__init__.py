"""One file per thing we poll (plug-ins)."""
