"""Embeddings of the records of a file, computed before a load."""
