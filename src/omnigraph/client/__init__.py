"""The API over HTTP: a `Graph` whose calls a server answers."""
