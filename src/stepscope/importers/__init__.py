"""Sources that runs are imported from, one file each."""
