"""The server as a process: sockets, start, idle end, one server for a store."""
