"""The store of recorded runs: the interface, SQLite, packed chunks and rollups."""
