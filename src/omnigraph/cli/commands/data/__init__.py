"""Subcommands that write, query and export the data of a graph."""
