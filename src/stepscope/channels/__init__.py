"""Alert channels, one file each."""
