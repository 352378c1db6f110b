"""The graphs that a server hosts: configuration, stored queries, and markers of served graphs."""
