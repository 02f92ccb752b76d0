"""Answers coding assistants by the Model Context Protocol: runs, findings, series, logs, alerts."""
