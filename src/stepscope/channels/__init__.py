"""One file per way to tell a person."""
