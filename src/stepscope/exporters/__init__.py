"""One file per system or format we feed (plug-ins)."""
