"""Inverted indexes of texts: in memory, and stored with a table."""
