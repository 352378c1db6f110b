"""The HTTP server: graphs for clients that have no access to their storage."""
