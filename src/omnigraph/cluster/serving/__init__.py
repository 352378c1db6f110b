"""The applied revision of a cluster as the graphs that a server hosts."""
