"""Subcommands that optimize, verify, repair, clean up and back up a graph."""
