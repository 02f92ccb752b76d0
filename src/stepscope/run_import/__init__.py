"""Imports runs of other tools into a store."""
