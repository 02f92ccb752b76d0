"""What was recorded, kept small and exact: the contract, SQLite, chunks and rollups."""
