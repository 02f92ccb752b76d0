"""Reads the files of other tools without trusting them."""
