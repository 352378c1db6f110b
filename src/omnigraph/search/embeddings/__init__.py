"""Embeddings: providers, the cache of vectors, and the vectors that writes compute."""
