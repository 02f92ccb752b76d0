"""Frameworks that train models: one file or folder each."""
