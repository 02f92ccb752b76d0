"""Who may reach the server and how: hosts, tokens, limits on requests and connections."""
