"""Subcommands that serve graphs, and that manage servers, their users and their policies."""
