"""Constraints of the schema, and the checks of every write against them."""
