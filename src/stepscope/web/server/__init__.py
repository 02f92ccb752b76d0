"""The server process: sockets, start, idle shutdown, one server for each store."""
