"""Column mappings: which columns of an input fill which properties, and with which casts."""
