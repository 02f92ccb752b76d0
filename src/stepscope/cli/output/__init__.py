"""Output of commands: tables, text, files."""
