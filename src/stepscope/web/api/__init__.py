"""The routes of the HTTP API, and the schemas of their responses."""
