"""Serves the web page: HTTP API, live feed, access control, built assets."""
