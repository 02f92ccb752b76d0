"""What commands print and write: tables, text, files."""
