"""Subcommands on branches, tags, commits and what they changed."""
