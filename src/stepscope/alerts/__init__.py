"""Evaluates alert rules, and notifies people through channels."""
