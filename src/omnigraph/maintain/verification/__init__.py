"""Verification: check that a graph in storage is complete and unaltered, and report the extent of any damage."""
