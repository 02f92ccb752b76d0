"""The store of recorded runs: the interface, how a store is opened, and SQLite, the default."""
